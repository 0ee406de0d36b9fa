import t from 'tap';

import { readPostgresPlants } from '../../dist/postgres/index.js';
import { FERN } from '../helpers/plants.js';
import { freePort } from '../helpers/service.js';
import { collect } from '../helpers/stores.js';
import { begin, missingForServers, startPair, succeeds, createTrigger, until } from './cluster.js';
import { startStoreLoad } from './load.js';
import { addUntilStored, openStore } from './support.js';

t.test('with a synchronous standby', { skip: missingForServers() }, async (t) => {
  const { primary, standby } = await startPair(t);
  const ports = [standby.port, await freePort(), primary.port];
  const url = `postgres://postgres@${ports.map((port) => `127.0.0.1:${port}`).join()}/postgres`;
  const options = { url, connections: 1, timeoutMs: 900 };
  /** Options for statements that must not time out. */
  const patient = { ...options, timeoutMs: 30_000 };

  const WAITING = `FROM pg_stat_activity WHERE wait_event = 'SyncRep'`;
  const waitsForStandby = (): Promise<unknown> => primary.untilFound(`SELECT ${WAITING}`);
  /** When a plant is acknowledged, the standby has it on its disk, but may show it only later. */
  const appearsOnStandby = (id: bigint): Promise<unknown> =>
    standby.untilFound(`SELECT FROM plants WHERE id = ${id}`);

  t.test('a plant is stored once the standby has it', async (t) => {
    const store = await openStore(t, patient);
    t.equal(await store.add(FERN), 'created');
    await standby.stop();
    const adding = store.add({ id: 100n, name: 'waits' });
    await waitsForStandby();
    await standby.start();
    t.equal(await adding, 'created');
    await appearsOnStandby(100n);
    await t.rejects(openStore(t, { url: standby.url }), { message: /read-only/ });
  });

  t.test('a cancelled wait is no acknowledgement, even if the server hides warnings', async (t) => {
    const store = await openStore(t, patient);
    // After RESET, a connection has the setting of the server, as it may have behind PgBouncer.
    await createTrigger(primary.url, 'RESET client_min_messages; RETURN NEW;');
    t.teardown(() => primary.sql('DROP TRIGGER before_plant ON plants'));
    await primary.configure('SET client_min_messages = error');
    await standby.stop();
    const plant = { id: 200n, name: 'cancelled' };
    const refused = t.rejects(store.add(plant), { code: 'unavailable', message: /standby/ });
    await waitsForStandby();
    await primary.sql(`SELECT pg_cancel_backend(pid) ${WAITING}`);
    await refused;
    await standby.start();
    t.equal(await addUntilStored(store, plant), 'unchanged');
    await primary.configure('RESET client_min_messages');
  });

  t.test(
    'a plant waits for the standby, even if the role turns synchronous_commit off',
    async (t) => {
      const ROLE = 'ALTER ROLE postgres SET synchronous_commit = off';
      await primary.sql(ROLE);
      t.teardown(() => primary.sql(ROLE.replace('SET', 'RESET').replace(' = off', '')));
      const store = await openStore(t, patient);
      await standby.stop();
      const adding = store.add({ id: 150n, name: 'waits' });
      const first = await Promise.race([adding, waitsForStandby().then(() => 'waits')]);
      t.equal(first, 'waits', 'it is not acknowledged at once');
      await standby.start();
      t.equal(await adding, 'created');
    },
  );

  t.test('synchronous_commit that is reloaded while a plant is stored has no effect', async (t) => {
    // The lock_timeout of the store is a minute.
    const store = await openStore(t, { ...options, timeoutMs: 3_000_000 });
    await createTrigger(primary.url, `PERFORM pg_advisory_xact_lock_shared(7); RETURN NEW;`);
    t.teardown(() => primary.sql('DROP TRIGGER before_plant ON plants'));
    for (const [outcome, lock] of [
      ['created', 'pg_advisory_xact_lock(7)'],
      ['unchanged', 'FROM plants WHERE id = 300 FOR UPDATE'],
    ] as const) {
      // The lock of another program holds the plant up meanwhile.
      const release = await begin(t, primary.url, `SELECT ${lock}`);
      await standby.stop();
      const adding = store.add({ id: 300n, name: 'waits' });
      const [blocked] = await primary.untilFound(
        'SELECT pid FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0',
      );
      await primary.sql('ALTER SYSTEM SET synchronous_commit = off');
      // This does not use pg_reload_conf(), which does not wait until the process has the signal.
      process.kill(Number(blocked?.pid), 'SIGHUP');
      await release();
      const first = await Promise.race([adding, waitsForStandby().then(() => 'waits')]);
      t.equal(first, 'waits', `${outcome}: it is not acknowledged at once`);
      await primary.configure('RESET synchronous_commit');
      await standby.start();
      t.equal(await adding, outcome);
    }
  });

  t.test(
    'a plant whose acknowledgement was lost is neither stored nor read before the standby has it',
    async (t) => {
      const store = await openStore(t, options);
      await standby.stop();
      const plant = { id: 400n, name: 'lost' };
      const refused = t.rejects(store.add(plant), { code: 'unavailable' });
      await waitsForStandby();
      // The row becomes visible, and no standby has it.
      await primary.sql(`SELECT pg_terminate_backend(pid) ${WAITING}`);
      await refused;
      t.equal((await primary.sql('SELECT FROM plants WHERE id = 400')).length, 1);
      await t.rejects(
        store.add(plant),
        { code: 'unavailable' },
        'the plant is not called unchanged',
      );
      await t.rejects(store.get(plant.id), { code: 'unavailable' }, 'the plant is not read');
      await standby.start();
      await until(() => succeeds(store.get(plant.id)));
      t.strictSame(await store.get(plant.id), plant);
      t.equal(await addUntilStored(store, plant), 'unchanged');
      await appearsOnStandby(400n);
    },
  );

  t.test('plants are not read from the standby, which may lack some', async (t) => {
    const store = await openStore(t, options);
    await primary.stop();
    await t.rejects(store.plants()[Symbol.asyncIterator]().next(), { message: /read-only/ });
    await primary.start();
    t.ok(await store.plants()[Symbol.asyncIterator]().next());
  });

  t.test(
    'with several hosts, plants are read from the primary; alone, a standby is read',
    async (t) => {
      await standby.sql('SELECT pg_wal_replay_pause()');
      const [{ count } = {}] = await standby.sql('SELECT count(*)::int FROM plants');
      await primary.sql(`SET synchronous_commit = local; INSERT INTO plants VALUES (500, 'new')`);
      const countOf = async (url: string) => (await collect(readPostgresPlants({ url }))).length;
      t.equal(await countOf(url), Number(count) + 1);
      t.equal(await countOf(standby.url), count);
      const two = standby.url.replace(/(?=\/postgres$)/, `,127.0.0.1:${standby.port}`);
      await t.rejects(countOf(two), {
        code: 'unavailable',
        message: /: it is a standby, which may/,
      });
      await standby.sql('SELECT pg_wal_replay_resume()');
    },
  );

  t.test('the standby is promoted under load, and no acknowledged plant is lost', async (t) => {
    const stores = await Promise.all([1, 2].map(() => openStore(t, { url, timeoutMs: 1_000 })));
    const load = startStoreLoad(stores);
    await load.untilProgress();
    await primary.stop('immediate');
    await standby.promote();
    await load.untilProgress();
    await load.expectNothingLost(t, standby.url);
  });
});
