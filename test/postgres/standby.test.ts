import t, { type Test } from 'tap';

import type { NewPlant } from '../../dist/index.js';
import { exactly } from '../exactly.js';
import { freePort, missing, startCluster, until, type Cluster } from './cluster.js';
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
  /** For what must not end by a timeout. */
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

  t.test('server processes that wait for the standby are limited', async (t) => {
    await primary.sql(`CREATE ROLE limited LOGIN CONNECTION LIMIT 4;
      GRANT SELECT, INSERT, UPDATE (exact) ON plants TO limited`);
    const countProcesses = async (): Promise<number> => {
      const sql = `SELECT 1 FROM pg_stat_activity WHERE usename = 'limited'`;
      return (await primary.sql(sql)).length;
    };
    const url = primary.urlOf('postgres', 'limited');
    const store = await openStore(t, { url, connections: 2, timeoutMs: 300 });
    await standby.stop();
    const refused: NewPlant[] = [];
    let reason = '';
    while (!reason.includes('too many connections')) {
      const plant = { id: BigInt(400 + refused.length), name: 'waits' };
      await t.rejects(store.add(plant), { code: 'unavailable' });
      reason = await store.add(plant).then(String, String);
      refused.push(plant);
    }
    t.equal(await countProcesses(), 4);
    await standby.start();
    for (const plant of refused) await addUntilStored(store, plant);
    t.match(store.reports, exactly(/plants are refused/, /stored again/));
    await until(async () => (await countProcesses()) === 2);
  });

  t.test('the standby is promoted', async (t) => {
    const store = await openStore(t, options);
    await primary.stop('immediate');
    await standby.promote();
    t.equal(await addUntilStored(store, { id: 300n, name: 'after' }), 'created');
    t.equal(await store.add(FERN), 'unchanged');
  });
});
