import t from 'tap';

import { exactly } from '../helpers/exactly.js';
import { FERN, IVY } from '../helpers/plants.js';
import { begin, missingForServers, query, startCluster, createTrigger } from './cluster.js';
import { addUntilStored, openStore, plantsFrom, refusedOf } from './support.js';

const LOCK_TIMEOUT = { code: 'unavailable', message: /lock timeout$/ };

/** How a trigger refuses the plant named "a weed", by the SQLSTATE of the failure. */
const FAILING: Record<string, string> = {
  '22012': 'PERFORM 1 / 0',
  '42P01': `PERFORM 'missing'::regclass`,
};

// A trigger may raise any SQLSTATE.
for (const code of ['P0001', '26000', '55P03', '57014'])
  FAILING[code] = `RAISE 'a weed' USING ERRCODE = '${code}'`;

t.test('a refused plant causes no other refusals', { skip: missingForServers() }, async (t) => {
  const cluster = await startCluster(t);

  /** How many statements the server has ended for a reason. */
  const endedBy = (reason: string): number => cluster.log().split(`due to ${reason}`).length - 1;

  t.test('of 100 plants, only the one whose row another program holds is refused', async (t) => {
    const url = await cluster.createSchema();
    // The lock_timeout of the store is 400 ms.
    const store = await openStore(t, { url, connections: 1, timeoutMs: 20_000 });
    const rollBack = await begin(t, url, `INSERT INTO plants VALUES (98, 'plant 98')`);
    const before = endedBy('lock timeout');
    const refused = await refusedOf(store, plantsFrom(0, 100));
    t.equal(endedBy('lock timeout'), before + 8, 'for 100, 50, 25, 13, 7, 4, 2 and 1');
    t.match(refused, exactly({ plant: { id: 98n }, error: LOCK_TIMEOUT }));
    t.match(store.reports, exactly(/refuses a plant: .*lock timeout/));
    await rollBack();
    t.equal(await addUntilStored(store, { id: 98n, name: 'plant 98' }), 'created');
  });

  t.test('however many rows are held, no plant waits longer than the limit', async (t) => {
    const url = await cluster.createSchema();
    const store = await openStore(t, { url, connections: 1, timeoutMs: 2_000 });
    const plants = plantsFrom(0, 500);
    await Promise.all(plants.map((plant) => addUntilStored(store, plant)));
    const rollBack = await begin(t, url, 'DELETE FROM plants');
    const before = endedBy('lock timeout');
    const refused = await refusedOf(store, plants);
    t.equal(refused.length, plants.length);
    t.match(refused.at(-1), { error: { code: 'unavailable', message: /too slow$/ } });
    const tries = endedBy('lock timeout') - before;
    t.ok(tries <= 51, `${tries} of at least 40 ms in 2,000 ms`);
    await rollBack();
    t.equal(await addUntilStored(store, { id: 7n, name: 'plant 7' }), 'unchanged');
  });

  t.test('a statement ends at the server, too, after two fifths of the time', async (t) => {
    const times = ['statement_timeout', 'lock_timeout', 'idle_session_timeout'];
    const long = times.map((name) => `${name} = '1h'`);
    const url = await cluster.createSchema(...long);
    const store = await openStore(t, { url, connections: 1 });
    const values = times.map((name) => `current_setting('${name}')`);
    await createTrigger(url, `RAISE '% % %', ${values.join()};`);
    await t.rejects(store.add(FERN), { message: /: 24s 1200ms 0$/ });

    const impatient = await openStore(t, { url, connections: 1, timeoutMs: 500 });
    await createTrigger(
      url,
      `IF NEW.name = '${IVY.name}' THEN PERFORM pg_sleep(3600); END IF; RETURN NEW;`,
    );
    const before = endedBy('statement timeout');
    await t.rejects(impatient.add(IVY), { code: 'unavailable', message: /time/ });
    const sleeping = `SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep'`;
    await cluster.untilFound(`SELECT WHERE NOT EXISTS (${sleeping})`);
    t.ok(endedBy('statement timeout') <= before + 1, 'it is not sent again');
    t.equal(await addUntilStored(impatient, FERN), 'created');
  });

  t.test('of 100 plants, only the one that a trigger refuses is refused', async (t) => {
    const url = await cluster.createSchema();
    const store = await openStore(t, { url, connections: 1 });
    const { username } = new URL(url);
    const processes = `SELECT pid FROM pg_stat_activity WHERE usename = '${username}'`;
    const before = await cluster.sql(processes);
    const plants = plantsFrom(0, 100).map((plant) => ({ ...plant, name: 'plants' }));
    plants[42] = { id: 42n, name: 'a weed' };
    for (const [code, sql] of Object.entries(FAILING)) {
      await createTrigger(url, `IF NEW.name = 'a weed' THEN ${sql}; END IF; RETURN NEW;`);
      const error = { code: 'unavailable', cause: { code } };
      t.match(await refusedOf(store, plants), exactly({ plant: { id: 42n }, error }), code);
      await query(url, 'TRUNCATE plants');
    }
    t.match(store.reports[0], /the database refuses a plant: /);
    t.strictSame(await cluster.sql(processes), before, 'the connection has stayed open');
  });

  t.test('an error of the server refuses the batch, and the next one is stored', async (t) => {
    for (const code of ['08000', '25006', '53100', '57P05', '58030', 'XX000']) {
      const url = await cluster.createSchema();
      const store = await openStore(t, { url, connections: 1 });
      await createTrigger(url, `RAISE 'a fault' USING ERRCODE = '${code}';`);
      const refused = await refusedOf(store, [FERN, IVY]);
      const error = { code: 'unavailable', cause: { code } };
      t.match(refused, exactly({ plant: FERN, error }, { plant: IVY, error }), code);
      await createTrigger(url, 'RETURN NEW;');
      t.equal(await store.add(FERN), 'created');
      t.match(store.reports, exactly(/a fault; plants are refused/, /stored again/), code);
    }
  });

  t.test('a plant whose trigger takes too long is refused, and others are stored', async (t) => {
    const url = await cluster.createSchema();
    const store = await openStore(t, { url, connections: 1, timeoutMs: 1_000 });
    await createTrigger(url, 'IF NEW.id = 42 THEN PERFORM pg_sleep(3600); END IF; RETURN NEW;');
    const slow = { id: 42n, name: 'slow' };
    // All clients try again, so that the slow plant is in each batch. A busy machine may need many
    // attempts.
    let left = plantsFrom(0, 10);
    for (let tries = 0; left.length > 0; tries++) {
      if (tries === 100) throw new Error(`${left.length} plants are not stored`);
      const refused = t.rejects(store.add(slow), { message: /statement timeout|too slow/ });
      left = (await refusedOf(store, left)).map(({ plant }) => plant);
      await refused;
    }
  });
});
