import t, { type Test } from 'tap';

import { openPostgresStore } from '../../dist/postgres/index.js';
import { begin, missing, query, startCluster, trigger, until } from './cluster.js';
import { addUntilStored, FERN, IVY, openStore, plantsFrom, refusedOf } from './support.js';

const LOCKED = { code: 'unavailable', message: /lock timeout$/ };

t.test('a row that another program has locked', { skip: missing() }, async (t) => {
  const cluster = await startCluster(t);

  /** What another program does with the plant 1998. */
  const HELD: Record<string, string> = {
    'is deleted': 'DELETE FROM plants WHERE id = 1998',
    'is inserted': `INSERT INTO plants VALUES (1998, 'plant 1998')`,
  };
  for (const [how, sql] of Object.entries(HELD))
    t.test(`is the only one of its batch that is refused: it ${how}`, async (t) => {
      const url = await cluster.createSchema();
      // Its lock_timeout is 400 ms.
      const store = await openStore(t, { url, connections: 1, timeoutMs: 20_000 });
      if (how === 'is deleted') await store.add({ id: 1_998n, name: 'plant 1998' });
      const rollBack = await begin(t, url, sql);
      const refused = await refusedOf(store, plantsFrom(0, 2_000));
      t.match(refused, { 0: { plant: { id: 1_998n }, error: LOCKED }, length: 1 });
      t.match(store.reports, { 0: /refuses a plant: .*lock timeout/, length: 1 });
      await rollBack();
      t.match(await addUntilStored(store, { id: 1_998n, name: 'plant 1998' }), /created|unchanged/);
    });

  t.test('and many others, do not make the rest wait longer than the limit', async (t) => {
    const url = await cluster.createSchema();
    const store = await openStore(t, { url, connections: 1, timeoutMs: 2_000 });
    const plants = plantsFrom(0, 500);
    await Promise.all(plants.map((plant) => addUntilStored(store, plant)));
    const rollBack = await begin(t, url, 'DELETE FROM plants');
    const refused = await refusedOf(store, plants);
    t.equal(refused.length, plants.length);
    t.match(refused[0], { error: LOCKED });
    t.match(refused.at(-1), { error: { code: 'unavailable', message: /too slow$/ } });
    await rollBack();
    t.equal(await addUntilStored(store, { id: 7n, name: 'plant 7' }), 'unchanged');
  });

  t.test('an instance waits until another one has created the table', async (t) => {
    const url = await cluster.createSchema();
    const lock = `SELECT pg_advisory_xact_lock(hashtext('CREATE TABLE plants'))`;
    const rollBack = await begin(t, url, lock);
    const opening = openPostgresStore({ url, timeoutMs: 10_000 });
    let isSettled = false;
    void opening.catch(() => undefined).then(() => (isSettled = true));
    // Longer than the lock_timeout of its connection.
    const waiting = `SELECT FROM pg_stat_activity
      WHERE wait_event = 'advisory' AND now() - query_start > '300 ms'`;
    await until(async () => isSettled || (await cluster.sql(waiting)).length > 0);
    t.notOk(isSettled);
    await rollBack();
    await (await opening).close();
  });

  t.test('a statement ends at the server, too', async (t) => {
    const times = ['statement_timeout', 'lock_timeout', 'idle_session_timeout'];
    const long = times.map((name) => `${name} = '1h'`);
    const url = await cluster.createSchema(...long, 'exit_on_error = on');
    const store = await openStore(t, { url, connections: 1 });
    const values = [...times, 'exit_on_error'].map((name) => `current_setting('${name}')`);
    await trigger(url, `RAISE '% % % %', ${values.join()};`);
    await t.rejects(store.add(FERN), { message: /: 24s 1200ms 0 off$/ });

    const impatient = await openStore(t, { url, connections: 1, timeoutMs: 500 });
    await trigger(url, `IF NEW.name = 'Ivy' THEN PERFORM pg_sleep(3600); END IF; RETURN NEW;`);
    await t.rejects(impatient.add(IVY), { code: 'unavailable', message: /time/ });
    const sleeping = `SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep'`;
    await until(async () => (await cluster.sql(sleeping)).length === 0);
    t.equal(await addUntilStored(impatient, FERN), 'created');
  });
});

/** What a trigger does with a weed, by the SQLSTATE of its failure. */
const FAILING: Record<string, string> = {
  '0A000': `PERFORM 'other.public.missing'::regclass`,
  '22012': 'PERFORM 1 / 0',
  '25006': `PERFORM set_config('transaction_read_only', 'on', true); CREATE TABLE other ()`,
  '3F000': 'PERFORM missing.missing()',
  '42601': `PERFORM to_tsquery('a b')`,
  '42P01': `PERFORM 'missing'::regclass`,
  '53400': `PERFORM set_config('temp_file_limit', '0', true), set_config('work_mem', '64', true);
    PERFORM FROM generate_series(1, 100000) ORDER BY random()`,
  '55000': 'PERFORM lastval()',
  '58P01': `PERFORM pg_read_file('missing')`,
};

// With whatever SQLSTATE it chooses.
for (const code of [
  ...['P0001', '45000', 'ZZZZZ', '01000', '28000', '42501', '53100', '57014', '25006', '26000'],
  ...['40001', 'XX000'],
])
  FAILING[`RAISE ${code}`] = `RAISE 'a weed' USING ERRCODE = '${code}'`;

/** How a table refuses a weed, and what mends it, by the SQLSTATE. */
const CONSTRAINTS: Record<string, [add: string, drop: string]> = {
  '23514': [`ADD CONSTRAINT c CHECK (name <> 'a weed')`, 'DROP CONSTRAINT c'],
  '42602': ['ADD CONSTRAINT c CHECK (name::regclass IS NOT NULL)', 'DROP CONSTRAINT c'],
  '42601': [
    `ADD query tsquery GENERATED ALWAYS AS (to_tsquery('simple', name)) STORED`,
    'DROP query',
  ],
};

t.test('what a trigger or a constraint refuses', { skip: missing() }, async (t) => {
  const cluster = await startCluster(t);
  const url = await cluster.createSchema();
  const store = await openStore(t, { url, connections: 1 });
  const processes = `SELECT pid FROM pg_stat_activity WHERE usename = '${new URL(url).username}'`;
  const before = await cluster.sql(processes);

  /** Adds 100 plants, of which the weed is to be refused. */
  async function refusesOne(t: Test, code: string): Promise<void> {
    const plants = plantsFrom(0, 100).map((plant) => ({ ...plant, name: 'plants' }));
    plants[42] = { id: 42n, name: 'a weed' };
    const error = { code: 'unavailable', cause: { code } };
    t.match(await refusedOf(store, plants), { 0: { plant: { id: 42n }, error }, length: 1 }, code);
    t.strictSame(await cluster.sql(processes), before, `${code}: the connection stays open`);
    await query(url, 'TRUNCATE plants');
  }

  t.test('is one plant of a batch', async (t) => {
    for (const [code, sql] of Object.entries(FAILING)) {
      await trigger(url, `IF NEW.name = 'a weed' THEN ${sql}; END IF; RETURN NEW;`);
      await refusesOne(t, code.slice(-5));
    }
    await query(url, 'DROP TRIGGER before_plant ON plants');
    for (const [code, [add, drop]] of Object.entries(CONSTRAINTS)) {
      await query(url, `ALTER TABLE plants ${add}`);
      await refusesOne(t, code);
      await query(url, `ALTER TABLE plants ${drop}`);
    }
    t.match(store.reports[0], /the database refuses a plant: /);
  });

  t.test('is one plant of a batch, because it takes too long', async (t) => {
    const impatient = await openStore(t, { url, connections: 1, timeoutMs: 1_000 });
    await trigger(url, 'IF NEW.id = 42 THEN PERFORM pg_sleep(3600); END IF; RETURN NEW;');
    const slow = { id: 42n, name: 'slow' };
    // All clients try again, so that the slow plant is in each batch. A busy machine may need many attempts.
    let left = plantsFrom(0, 10);
    for (let tries = 0; left.length > 0; tries++) {
      if (tries === 100) throw new Error(`${left.length} plants are not stored`);
      const refused = t.rejects(impatient.add(slow), { message: /statement timeout|too slow/ });
      left = (await refusedOf(impatient, left)).map(({ plant }) => plant);
      await refused;
    }
  });
});
