import pg from 'pg';
import t, { type Test } from 'tap';

import type { NewPlant } from '../../dist/index.js';
import { missing, query, startCluster, trigger, until } from './cluster.js';
import { addUntilStored, FERN, IVY, openStore } from './support.js';

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

t.test('a row that another program has locked', { skip: missing() }, async (t) => {
  const cluster = await startCluster(t);

  async function processesOf(url: string): Promise<number> {
    const { username } = new URL(url);
    const sql = `SELECT FROM pg_stat_activity WHERE usename = '${username}' AND application_name = 'plant-store'`;
    return (await cluster.sql(sql)).length;
  }

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
      const RETRIES = 4;
      let refused = 0;
      const retrying = (async () => {
        while (refused < RETRIES) {
          await t.rejects(store.add(FERN), LOCKED);
          refused++;
        }
      })();
      let id = 1_000;
      while (refused < RETRIES) {
        const outcomes = await Promise.all(
          plantsFrom((id += 100), 100).map((plant) => store.add(plant)),
        );
        t.ok(outcomes.every((outcome) => outcome === 'created'));
      }
      await retrying;
      t.equal(await processesOf(url), 2);
      await other.end();
      t.match(await addUntilStored(store, FERN), /created|unchanged/);
    });

  t.test('is the only one of its batch that is refused', async (t) => {
    const url = await cluster.createSchema();
    const store = await openStore(t, { url, connections: 1 });
    const plants = plantsFrom(0, 2_000);
    await Promise.all(plants.filter(({ id }) => id % 2n === 0n).map((plant) => store.add(plant)));
    const other = await begin(t, url, 'DELETE FROM plants WHERE id = 1998');
    const outcomes = await Promise.allSettled(plants.map((plant) => store.add(plant)));
    const refused = plants.filter((_, n) => outcomes[n]?.status === 'rejected');
    t.strictSame(refused, [plants[1_998]]);
    t.match(store.reports, { 0: /refuses a plant: .*lock timeout/, length: 1 });
    await other.end();
    t.equal(await store.add({ id: 1_998n, name: 'plant 1998' }), 'unchanged');
  });

  t.test('and many others, do not make the rest wait longer than the limit', async (t) => {
    const url = await cluster.createSchema();
    const store = await openStore(t, { url, connections: 1, timeoutMs: 2_000 });
    const plants = plantsFrom(0, 500);
    await Promise.all(plants.map((plant) => store.add(plant)));
    const other = await begin(t, url, 'DELETE FROM plants');
    const outcomes = await Promise.allSettled(plants.map((plant) => store.add(plant)));
    t.ok(outcomes.every(({ status }) => status === 'rejected'));
    t.match(outcomes[0], { reason: LOCKED });
    t.match(outcomes.at(-1), { reason: { code: 'unavailable', message: /too slow$/ } });
    await other.end();
    t.equal(await addUntilStored(store, { id: 7n, name: 'plant 7' }), 'unchanged');
  });

  t.test('an instance waits until another one has created the table', async (t) => {
    const url = await cluster.createSchema();
    const other = await begin(
      t,
      url,
      `SELECT pg_advisory_xact_lock(hashtext('CREATE TABLE plants'))`,
    );
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

  t.test('a table that is locked for a moment refuses few plants', async (t) => {
    const url = await cluster.createSchema();
    const store = await openStore(t, { url, connections: 1 });
    const other = await begin(t, url, 'LOCK TABLE plants');
    const adding = Promise.allSettled(plantsFrom(0, 500).map((plant) => store.add(plant)));
    await until(() => store.reports.length > 0);
    await other.end();
    const stored = (await adding).filter(({ status }) => status === 'fulfilled');
    t.ok(stored.length > 450, `${stored.length} of 500 plants are stored`);
  });
});

t.test('a statement that its client has given up', { skip: missing() }, async (t) => {
  const cluster = await startCluster(t);

  t.test('is bounded at the server', async (t) => {
    const url = await cluster.createSchema();
    await query(
      url,
      `ALTER ROLE CURRENT_USER SET statement_timeout = '1h';
      ALTER ROLE CURRENT_USER SET lock_timeout = '1h'; ALTER ROLE CURRENT_USER SET exit_on_error = on;
      ALTER ROLE CURRENT_USER SET idle_session_timeout = '1h'`,
    );
    const store = await openStore(t, { url, timeoutMs: 60_000 });
    await trigger(
      url,
      `RAISE '% % % %', current_setting('statement_timeout'), current_setting('lock_timeout'),
        current_setting('exit_on_error'), current_setting('idle_session_timeout');`,
    );
    await t.rejects(store.add(FERN), { message: /: 24s 1200ms off 0$/ });
  });

  t.test('may take all of the time if it creates the table', async (t) => {
    const url = await cluster.createDatabase();
    await query(
      url,
      `CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql
        AS $$ BEGIN RAISE '%', current_setting('statement_timeout'); END $$;
      CREATE EVENT TRIGGER refuse ON ddl_command_start EXECUTE FUNCTION refuse()`,
    );
    await t.rejects(openStore(t, { url, timeoutMs: 60_000 }), { message: /: 1min$/ });
  });

  t.test('ends at the server', async (t) => {
    const url = await cluster.createSchema();
    const store = await openStore(t, { url, connections: 1, timeoutMs: 500 });
    await trigger(url, `IF NEW.name = 'Ivy' THEN PERFORM pg_sleep(3600); END IF; RETURN NEW;`);
    await t.rejects(store.add(IVY), { code: 'unavailable', message: /time/ });
    await until(async () => {
      const sql = `SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep'`;
      return (await cluster.sql(sql)).length === 0;
    });
    t.equal(await addUntilStored(store, FERN), 'created');
  });
});

t.test('a trigger that raises an error of its own', { skip: missing() }, async (t) => {
  const cluster = await startCluster(t);
  const codes = [
    'P0001',
    '45000',
    'PL001',
    'ZZZZZ',
    '01000',
    '28000',
    '42501',
    '53100',
    '57014',
    '25006',
    '26000',
    '40001',
    'XX000',
  ];
  for (const code of codes)
    t.test(`refuses only its plant: ${code}`, async (t) => {
      const url = await cluster.createSchema();
      const store = await openStore(t, { url, connections: 1, timeoutMs: 60_000 });
      await trigger(
        url,
        `IF NEW.id = 42 THEN RAISE 'a weed' USING ERRCODE = '${code}'; END IF; RETURN NEW;`,
      );
      const plants = plantsFrom(0, 100);
      const outcomes = await Promise.allSettled(plants.map((plant) => store.add(plant)));
      t.strictSame(
        plants.filter((_, n) => outcomes[n]?.status === 'rejected'),
        [plants[42]],
      );
      t.match(outcomes[42], { reason: { code: 'unavailable', message: /: a weed$/ } });
      t.match(store.reports, { 0: /the database refuses a plant: a weed$/, length: 1 });
    });

  /** What a trigger may do that fails, by the SQLSTATE of the error. */
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
  for (const [code, sql] of Object.entries(FAILING))
    t.test(`refuses only its plant if it fails otherwise: ${code}`, async (t) => {
      const url = await cluster.createSchema();
      const store = await openStore(t, { url, connections: 1, timeoutMs: 60_000 });
      const processes = `SELECT pid FROM pg_stat_activity WHERE usename = '${new URL(url).username}'`;
      const before = await cluster.sql(processes);
      await trigger(url, `IF NEW.id = 42 THEN ${sql}; END IF; RETURN NEW;`);
      const plants = plantsFrom(0, 100);
      const outcomes = await Promise.allSettled(plants.map((plant) => store.add(plant)));
      t.strictSame(
        plants.filter((_, n) => outcomes[n]?.status === 'rejected'),
        [plants[42]],
      );
      t.match(outcomes[42], { reason: { code: 'unavailable', cause: { code } } });
      t.match(store.reports, { 0: /the database refuses a plant: /, length: 1 });
      t.strictSame(await cluster.sql(processes), before, 'the connection stays open');
    });

  t.test('refuses only its plant if it takes too long', async (t) => {
    const url = await cluster.createSchema();
    const store = await openStore(t, { url, connections: 1, timeoutMs: 1_000 });
    await trigger(url, 'IF NEW.id = 42 THEN PERFORM pg_sleep(3600); END IF; RETURN NEW;');
    const slow = { id: 42n, name: 'slow' };
    // All clients try again, so that the slow plant is in each batch. A busy machine may need many attempts.
    let left = plantsFrom(0, 10);
    for (let tries = 0; left.length > 0; tries++) {
      if (tries === 100) throw new Error(`${left.length} plants are not stored`);
      const refused = t.rejects(store.add(slow), { message: /statement timeout|too slow/ });
      const outcomes = await Promise.allSettled(left.map((plant) => store.add(plant)));
      left = left.filter((_, n) => outcomes[n]?.status === 'rejected');
      await refused;
    }
  });
});

t.test('a constraint that fails for one plant', { skip: missing() }, async (t) => {
  const cluster = await startCluster(t);
  const constraints: Record<string, string> = {
    'a generated column': `ADD query tsquery GENERATED ALWAYS AS (to_tsquery('simple', name)) STORED`,
    'a CHECK': 'ADD CHECK (name::regclass IS NOT NULL)',
  };
  for (const [what, sql] of Object.entries(constraints))
    t.test(`refuses only that plant: ${what}`, async (t) => {
      const url = await cluster.createSchema();
      const store = await openStore(t, { url, connections: 1 });
      await query(url, `ALTER TABLE plants ${sql}`);
      const plants = ['plants', 'plants', 'a weed', 'plants'].map((name, n) => ({
        ...{ id: BigInt(n), name },
      }));
      const outcomes = await Promise.allSettled(plants.map((plant) => store.add(plant)));
      t.strictSame(
        plants.filter((_, n) => outcomes[n]?.status === 'rejected'),
        [plants[2]],
      );
      t.match(store.reports, { 0: /the database refuses a plant: /, length: 1 });
    });
});
