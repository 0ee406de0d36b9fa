import pg from 'pg';
import t, { type Test } from 'tap';

import type { NewPlant } from '../../dist/index.js';
import { missing, query, startCluster, trigger, until } from './cluster.js';
import { addUntilStored, FERN, IVY, openStore, type TestStore } from './support.js';

const LOCKED = { code: 'unavailable', message: /lock timeout$/ };

/** Begins a transaction of another program, which is rolled back in the end. */
async function begin(t: Test, url: string, sql: string): Promise<pg.Client> {
  const client = new pg.Client(url);
  await client.connect();
  let isOpen = true;
  client.on('end', () => (isOpen = false));
  t.teardown(() => isOpen && client.end());
  await client.query(`BEGIN; ${sql}`);
  return client;
}

function plantsFrom(first: number, count: number): NewPlant[] {
  return Array.from({ length: count }, (_, n) => ({ id: BigInt(first + n), name: `plant ${n}` }));
}

/** Adds plants in one batch. Returns those that were refused, each with its error. */
async function refusedOf(store: TestStore, plants: readonly NewPlant[]) {
  const outcomes = await Promise.allSettled(plants.map((plant) => store.add(plant)));
  return plants.flatMap((plant, n) => {
    const outcome = outcomes[n];
    return outcome?.status === 'rejected' ? [{ plant, error: outcome.reason as unknown }] : [];
  });
}

t.test('a row that another program has locked', { skip: missing() }, async (t) => {
  const cluster = await startCluster(t);

  const HELD: Record<string, string> = {
    'is deleted': 'DELETE FROM plants WHERE id = 7',
    'is updated': `UPDATE plants SET tag = 'new' WHERE id = 7`,
    'is inserted': `DELETE FROM plants WHERE id = 7; COMMIT; BEGIN; INSERT INTO plants VALUES (7, 'Boston fern', 'indoor')`,
  };
  for (const [how, sql] of Object.entries(HELD))
    t.test(`stops only its plant: a row that ${how}`, async (t) => {
      const url = await cluster.createSchema();
      const store = await openStore(t, { url });
      await store.add(FERN);
      const other = await begin(t, url, sql);
      // A client sends that plant again and again, while others send theirs.
      let retries = 4;
      const retrying = (async () => {
        while (retries-- > 0) await t.rejects(store.add(FERN), LOCKED);
      })();
      for (let id = 1_000; retries > 0; id += 100)
        t.strictSame(await refusedOf(store, plantsFrom(id, 100)), []);
      await retrying;
      await other.end();
      t.match(await addUntilStored(store, FERN), /created|unchanged/);
    });

  t.test('is the only one of its batch that is refused', async (t) => {
    const url = await cluster.createSchema();
    const store = await openStore(t, { url, connections: 1 });
    const plants = plantsFrom(0, 2_000);
    t.strictSame(
      await refusedOf(
        store,
        plants.filter(({ id }) => id % 2n === 0n),
      ),
      [],
    );
    const other = await begin(t, url, 'DELETE FROM plants WHERE id = 1998');
    t.match(await refusedOf(store, plants), { 0: { plant: plants[1_998] }, length: 1 });
    t.match(store.reports, { 0: /refuses a plant: .*lock timeout/, length: 1 });
    await other.end();
    t.equal(await store.add({ id: 1_998n, name: 'plant 1998' }), 'unchanged');
  });

  t.test('and many others, do not make the rest wait longer than the limit', async (t) => {
    const url = await cluster.createSchema();
    const store = await openStore(t, { url, connections: 1, timeoutMs: 2_000 });
    const plants = plantsFrom(0, 500);
    await Promise.all(plants.map((plant) => addUntilStored(store, plant)));
    const other = await begin(t, url, 'DELETE FROM plants');
    const refused = await refusedOf(store, plants);
    t.equal(refused.length, plants.length);
    t.match(refused[0], { error: LOCKED });
    t.match(refused.at(-1), { error: { code: 'unavailable', message: /too slow$/ } });
    await other.end();
    t.equal(await addUntilStored(store, { id: 7n, name: 'plant 7' }), 'unchanged');
  });

  t.test('an instance waits until another one has created the table', async (t) => {
    const url = await cluster.createSchema();
    const lock = `SELECT pg_advisory_xact_lock(hashtext('CREATE TABLE plants'))`;
    const other = await begin(t, url, lock);
    const opening = openStore(t, { url });
    let isSettled = false;
    void opening.catch(() => undefined).then(() => (isSettled = true));
    const waiting = `SELECT FROM pg_stat_activity
      WHERE wait_event = 'advisory' AND now() - query_start > '300 ms'`;
    await until(async () => isSettled || (await cluster.sql(waiting)).length > 0);
    t.notOk(isSettled);
    await other.end();
    t.equal(await (await opening).add(FERN), 'created');
  });
});

t.test('a statement ends at the server, too', { skip: missing() }, async (t) => {
  const cluster = await startCluster(t);
  const url = await cluster.createSchema();
  await query(
    url,
    `ALTER ROLE CURRENT_USER SET statement_timeout = '1h';
    ALTER ROLE CURRENT_USER SET lock_timeout = '1h'; ALTER ROLE CURRENT_USER SET exit_on_error = on;
    ALTER ROLE CURRENT_USER SET idle_session_timeout = '1h'`,
  );
  const store = await openStore(t, { url, connections: 1, timeoutMs: 60_000 });
  await trigger(
    url,
    `RAISE '% % % %', current_setting('statement_timeout'), current_setting('lock_timeout'),
      current_setting('exit_on_error'), current_setting('idle_session_timeout');`,
  );
  await t.rejects(store.add(FERN), { message: /: 24s 1200ms off 0$/ });

  const impatient = await openStore(t, { url, connections: 1, timeoutMs: 500 });
  await trigger(url, `IF NEW.name = 'Ivy' THEN PERFORM pg_sleep(3600); END IF; RETURN NEW;`);
  await t.rejects(impatient.add(IVY), { code: 'unavailable', message: /time/ });
  const sleeping = `SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep'`;
  await until(async () => (await cluster.sql(sleeping)).length === 0);
  t.equal(await addUntilStored(impatient, FERN), 'created');
});

t.test('what a trigger or a constraint refuses', { skip: missing() }, async (t) => {
  const cluster = await startCluster(t);
  const url = await cluster.createSchema();
  const processes = `SELECT pid FROM pg_stat_activity WHERE usename = '${new URL(url).username}'`;
  // Creates the table.
  await (await openStore(t, { url })).close();

  /** Adds 100 plants, of which the one with the name `a weed` is to be refused. */
  async function refusesOne(t: Test, code: string): Promise<void> {
    const plants = plantsFrom(0, 100).map((plant) => ({ ...plant, name: 'plants' }));
    plants[42] = { id: 42n, name: 'a weed' };
    const store = await openStore(t, { url, connections: 1 });
    const before = await cluster.sql(processes);
    const refused = await refusedOf(store, plants);
    t.match(
      refused,
      { 0: { plant: { id: 42n }, error: { code: 'unavailable' } }, length: 1 },
      code,
    );
    t.match(refused[0]?.error, { cause: { code } });
    t.match(store.reports, { 0: /the database refuses a plant: /, length: 1 });
    t.strictSame(await cluster.sql(processes), before, 'the connection stays open');
    await store.close();
    await query(url, 'TRUNCATE plants');
  }

  t.test('is one plant of a batch, whatever SQLSTATE the trigger has chosen', async (t) => {
    const codes = ['P0001', '45000', 'ZZZZZ', '01000', '28000', '42501', '53100', '57014', '25006'];
    for (const code of [...codes, '26000', '40001', 'XX000']) {
      const sql = `RAISE 'a weed' USING ERRCODE = '${code}'`;
      await trigger(url, `IF NEW.name = 'a weed' THEN ${sql}; END IF; RETURN NEW;`);
      await refusesOne(t, code);
    }
  });

  t.test('is one plant of a batch, however the trigger fails', async (t) => {
    /** By the SQLSTATE of the error. */
    const failing: Record<string, string> = {
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
    for (const [code, sql] of Object.entries(failing)) {
      await trigger(url, `IF NEW.name = 'a weed' THEN ${sql}; END IF; RETURN NEW;`);
      await refusesOne(t, code);
    }
    await query(url, 'DROP TRIGGER before_plant ON plants');
  });

  t.test('is one plant of a batch, by a constraint, an index or a generated column', async (t) => {
    const constraints: Record<string, [add: string, drop: string]> = {
      '23514': [`ADD CONSTRAINT c CHECK (name <> 'a weed')`, 'DROP CONSTRAINT c'],
      '42602': ['ADD CONSTRAINT c CHECK (name::regclass IS NOT NULL)', 'DROP CONSTRAINT c'],
      '42601': [
        `ADD query tsquery GENERATED ALWAYS AS (to_tsquery('simple', name)) STORED`,
        'DROP query',
      ],
    };
    for (const [code, [add, drop]] of Object.entries(constraints)) {
      await query(url, `ALTER TABLE plants ${add}`);
      await refusesOne(t, code);
      await query(url, `ALTER TABLE plants ${drop}`);
    }
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
