import pg from 'pg';
import t, { type Test } from 'tap';

import type { NewPlant } from '../../dist/index.js';
import { exactly } from '../exactly.js';
import { freePort } from '../service.js';
import { missing, startCluster, trigger, until, type Cluster } from './cluster.js';
import { addUntilStored, FERN, IVY, openStore } from './support.js';

/** A server that acknowledges a commit once its standby has it. */
async function startPair(t: Test): Promise<{ primary: Cluster; standby: Cluster }> {
  const primary = await startCluster(t);
  const standby = await primary.createStandby(t, 'standby');
  await primary.sql(`ALTER SYSTEM SET synchronous_standby_names = 'standby'`);
  await primary.sql('SELECT pg_reload_conf()');
  await until(async () => {
    const states = await primary.sql('SELECT sync_state FROM pg_stat_replication');
    return states.some(({ sync_state }) => sync_state === 'sync');
  });
  return { primary, standby };
}

const WAITING = `FROM pg_stat_activity WHERE wait_event = 'SyncRep'`;

async function waitsForStandby(primary: Cluster): Promise<void> {
  await until(async () => (await primary.sql(`SELECT 1 ${WAITING}`)).length > 0);
}

t.test('with a synchronous standby', { skip: missing() }, async (t) => {
  const { primary, standby } = await startPair(t);
  const closed = await freePort();
  const hosts = [standby.port, closed, primary.port].map((port) => `127.0.0.1:${port}`).join();
  const url = `postgres://postgres@${hosts}/postgres`;
  const options = { url, connections: 1, timeoutMs: 900 };
  /** For statements that must not time out. */
  const patient = { ...options, timeoutMs: 30_000 };

  t.test('the server that takes writes is found', async (t) => {
    const store = await openStore(t, options);
    t.equal(await store.add(FERN), 'created');
  });

  t.test('a plant is stored once the standby has it', async (t) => {
    const store = await openStore(t, patient);
    await standby.stop();
    const plant = { id: 100n, name: 'waits' };
    const adding = store.add(plant);
    await waitsForStandby(primary);
    await standby.start();
    t.equal(await adding, 'created');
    t.strictSame(await standby.sql('SELECT name FROM plants WHERE id = 100'), [{ name: 'waits' }]);
  });

  t.test('a cancelled wait for the standby is no acknowledgement', async (t) => {
    const store = await openStore(t, patient);
    await standby.stop();
    const adding = Promise.allSettled([store.add(IVY)]);
    await waitsForStandby(primary);
    await primary.sql(`SELECT pg_cancel_backend(pid) ${WAITING}`);
    t.match(await adding, exactly({ reason: { code: 'unavailable', message: /standby/ } }));
    await standby.start();
    t.equal(await addUntilStored(store, IVY), 'unchanged');
  });

  t.test('a server that hides warnings cannot hide a cancelled wait', async (t) => {
    const store = await openStore(t, patient);
    const plant = { id: 101n, name: 'warned' };
    await primary.sql('ALTER SYSTEM SET client_min_messages = error');
    await primary.sql('SELECT pg_reload_conf()');
    await until(async () => {
      const [row] = await primary.sql('SHOW client_min_messages');
      return row?.client_min_messages === 'error';
    });
    await standby.stop();
    const adding = Promise.allSettled([store.add(plant)]);
    await waitsForStandby(primary);
    await primary.sql(`SELECT pg_cancel_backend(pid) ${WAITING}`);
    t.match(await adding, exactly({ reason: { code: 'unavailable', message: /standby/ } }));
    await standby.start();
    t.equal(await addUntilStored(store, plant), 'unchanged');
    await primary.sql('ALTER SYSTEM RESET client_min_messages');
    await primary.sql('SELECT pg_reload_conf()');
  });

  t.test('settings that are reloaded while a plant is stored do not acknowledge it', async (t) => {
    // Its lock_timeout is a minute.
    const store = await openStore(t, { ...options, timeoutMs: 3_000_000 });
    // Without its own setting, a connection has the one that is reloaded, as it may behind PgBouncer.
    await trigger(
      primary.url,
      `RESET client_min_messages; PERFORM pg_advisory_xact_lock_shared(7); RETURN NEW;`,
    );
    t.teardown(() => primary.sql('DROP TRIGGER before_plant ON plants'));

    /** Adds a plant, and changes a setting while a lock of another program holds it up. */
    async function addDuring(plant: NewPlant, lock: string, setting: string) {
      const other = new pg.Client(primary.url);
      await other.connect();
      await other.query(`BEGIN; SELECT ${lock}`);
      await standby.stop();
      const adding = store.add(plant);
      let blocked: Record<string, unknown>[] = [];
      await until(async () => {
        blocked = await primary.sql(
          'SELECT pid FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0',
        );
        return blocked.length > 0;
      });
      await primary.sql(`ALTER SYSTEM SET ${setting}`);
      // Not by pg_reload_conf(), which does not wait until the process has the signal.
      process.kill(Number(blocked[0]?.pid), 'SIGHUP');
      await other.end();
      return { adding };
    }
    async function reset(): Promise<void> {
      await primary.sql('ALTER SYSTEM RESET synchronous_commit');
      await primary.sql('ALTER SYSTEM RESET client_min_messages');
      await primary.sql('SELECT pg_reload_conf()');
      await standby.start();
    }
    const isWaiting = (adding: Promise<unknown>): Promise<unknown> =>
      Promise.race([adding, waitsForStandby(primary).then(() => 'waits')]);

    const plant = { id: 600n, name: 'waits' };
    const off = 'synchronous_commit = off';
    for (const [outcome, lock] of [
      ['created', 'pg_advisory_xact_lock(7)'],
      ['unchanged', 'FROM plants WHERE id = 600 FOR UPDATE'],
    ] as const) {
      const { adding } = await addDuring(plant, lock, off);
      t.equal(await isWaiting(adding), 'waits', `${outcome}: it is not acknowledged at once`);
      await reset();
      t.equal(await adding, outcome);
    }

    const hidden = 'client_min_messages = error';
    const { adding } = await addDuring({ ...plant, id: 601n }, 'pg_advisory_xact_lock(7)', hidden);
    t.equal(await isWaiting(adding), 'waits');
    const refused = t.rejects(adding, { code: 'unavailable', message: /standby/ });
    await primary.sql(`SELECT pg_cancel_backend(pid) ${WAITING}`);
    await refused;
    await reset();
  });

  t.test('a plant whose acknowledgement was lost waits for the standby, too', async (t) => {
    const store = await openStore(t, options);
    await standby.stop();
    const plant = { id: 200n, name: 'lost' };
    const adding = Promise.allSettled([store.add(plant)]);
    await waitsForStandby(primary);
    // The row becomes visible, and no standby has it.
    await primary.sql(`SELECT pg_terminate_backend(pid) ${WAITING}`);
    t.match(await adding, exactly({ reason: { code: 'unavailable' } }));
    t.match(await primary.sql('SELECT 1 FROM plants WHERE id = 200'), { length: 1 });
    await t.rejects(store.add(plant), { code: 'unavailable' }, 'it is not called unchanged');
    await standby.start();
    t.equal(await addUntilStored(store, plant), 'unchanged');
    t.match(await standby.sql('SELECT 1 FROM plants WHERE id = 200'), { length: 1 });
  });

  t.test('a standby alone is refused', async (t) => {
    await t.rejects(openStore(t, { url: standby.url }), { message: /read-only/ });
  });

  t.test('no timeout turns a wait for the standby into an acknowledgement', async (t) => {
    const { url } = options;
    const stores = await Promise.all(
      [50, 75, 100, 150].map((timeoutMs) => openStore(t, { url: primary.url, timeoutMs })),
    );
    const patientStore = await openStore(t, { ...patient, url });
    await standby.stop();
    const ids = Array.from({ length: 10 }, (_, n) => BigInt(500 + n));
    for (const id of ids) {
      // Each store also encounters rows and locks left by the others.
      const adding = stores.flatMap((store) => [
        store.add({ id, name: 'waits' }),
        store.add({ id: id + 1n, name: 'waits' }),
      ]);
      for (const outcome of await Promise.allSettled(adding))
        t.match(outcome, { reason: { code: 'unavailable' } });
    }
    await standby.start();
    for (const id of ids)
      t.match(await addUntilStored(patientStore, { id, name: 'waits' }), /created|unchanged/);
  });

  t.test('the standby is promoted', async (t) => {
    const store = await openStore(t, options);
    await primary.stop('immediate');
    await standby.promote();
    t.equal(await addUntilStored(store, { id: 300n, name: 'after' }), 'created');
    t.equal(await store.add(FERN), 'unchanged');
  });
});
