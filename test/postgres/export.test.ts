/* Tests reading the plants of a database, and the command that prints them. */
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';

import t from 'tap';

import { readPostgresPlants } from '../../dist/postgres/index.js';
import type * as Postgres from '../../dist/postgres/index.js';
import { buildWithMoreRules } from '../helpers/more-rules.js';
import { FAILED, INTERRUPTED, launchHere, runHere } from '../helpers/program.js';
import { collect } from '../helpers/stores.js';
import { begin, missingForServers, query, startCluster } from './cluster.js';
import { openStore } from './support.js';

const TABLE = 'CREATE TABLE plants (id bigint PRIMARY KEY, name text, tag text, exact text)';
const ONE = `INSERT INTO plants VALUES (1, 'fern')`;

/** What other programs can store, and what is wrong with it. */
const NO_PLANTS: Record<string, RegExp> = {
  [`NULL, NULL, NULL`]: /name: must be a string/,
  [`'', NULL, '{}'`]: /name: must be a string/,
  [`'', NULL, '[1]'`]: /name: must be a string/,
  [`'', NULL, 'null'`]: /name: must be a string/,
  [`'', NULL, '"text"'`]: /name: must be a string/,
  [`'', NULL, '{"name":1}'`]: /name: must be a string/,
  [`'', NULL, '{"name":"","tag":null}'`]: /tag: must be a string/,
  [`'', NULL, 'nonsense'`]: /JSON/,
  [`'', NULL, ''`]: /JSON/,
};

t.test('plants are read from a database', { skip: missingForServers() }, async (t) => {
  const cluster = await startCluster(t);
  const args = ['export'];
  const envOf = (url: string) => ({ PLANT_STORE_DATABASE_URL: url });

  async function created(...statements: readonly string[]): Promise<string> {
    const url = await cluster.createSchema();
    await query(url, statements.join(';'));
    return url;
  }

  t.test('without the table, an export creates none, and fails', async (t) => {
    const url = await cluster.createSchema();
    const { code, stdout, stderr } = await runHere(t, { args, env: envOf(url) });
    t.match({ code, stdout }, { code: FAILED, stdout: '' });
    t.match(stderr, /^plant-store: PLANT_STORE_DATABASE_URL: .*"plants" does not exist\n$/);
    t.strictSame(await query(url, `SELECT to_regclass('plants') AS plants`), [{ plants: null }]);
  });

  t.test('rows that a policy hides from the role make the export fail', async (t) => {
    const owner = await created(
      TABLE,
      ONE,
      'ALTER TABLE plants ENABLE ROW LEVEL SECURITY',
      'CREATE POLICY none ON plants FOR SELECT USING (false)',
    );
    const { username } = new URL(owner);
    await cluster.sql(`CREATE ROLE limited LOGIN; GRANT USAGE ON SCHEMA ${username} TO limited;
      GRANT SELECT ON ${username}.plants TO limited;
      ALTER ROLE limited SET search_path = ${username}`);
    const url = cluster.urlOf('postgres', 'limited');
    const { code, stdout, stderr } = await runHere(t, { args, env: envOf(url) });
    t.match({ code, stdout }, { code: FAILED, stdout: '' });
    t.match(stderr, /row-level security policy/);
  });

  t.test('a role needs only the right to select', async (t) => {
    const owner = await created(TABLE, ONE);
    const { username } = new URL(owner);
    await cluster.sql(`CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA ${username} TO reader;
      GRANT SELECT ON ${username}.plants TO reader;
      ALTER ROLE reader SET search_path = ${username};
      ALTER ROLE reader SET default_transaction_read_only = on`);
    const url = cluster.urlOf('postgres', 'reader');
    const { code, stdout, stderr } = await runHere(t, { args, env: envOf(url) });
    t.strictSame(
      { code, stdout, stderr },
      { code: 0, stdout: '{"id":1,"name":"fern"}\n', stderr: '' },
    );
  });

  t.test(
    'an export waits for a lock, whatever the limits of the role, until a signal',
    async (t) => {
      const url = await cluster.createSchema(`lock_timeout = '1s'`, `statement_timeout = '1s'`);
      await query(url, `${TABLE}; ${ONE}`);
      const waits = () =>
        cluster.untilFound(`SELECT FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0
        AND clock_timestamp() > query_start + interval '1.5 s'`);
      for (const isStopped of [false, true]) {
        const release = await begin(t, url, 'LOCK TABLE plants');
        const program = launchHere(t, { args, env: envOf(url) });
        await waits();
        if (isStopped) program.send('SIGTERM');
        else await release();
        t.equal((await program.ended).code, isStopped ? INTERRUPTED : 0);
        t.equal(program.stdout, isStopped ? '' : '{"id":1,"name":"fern"}\n');
        await release();
      }
    },
  );

  t.test('a row that is not a plant is named, and ends the reading', async (t) => {
    for (const [row, reason] of Object.entries(NO_PLANTS)) {
      const url = await created(TABLE, ONE, `INSERT INTO plants VALUES (2, ${row})`);
      const { code, stdout, stderr } = await runHere(t, { args, env: envOf(url) });
      t.match({ code, stdout }, { code: FAILED, stdout: '' }, row);
      t.match(stderr, /: the row with the id 2 is not a plant: /, row);
      t.match(stderr, reason, row);
    }
    const url = await created(TABLE.replace('bigint', 'numeric'), ONE);
    const message = /: the column id must be of the type bigint$/;
    await t.rejects(collect(readPostgresPlants({ url })), { code: 'unavailable', message });
  });

  t.test('a rule for new plants does not apply to stored plants', async (t) => {
    const url = await created(TABLE, ONE);
    const path = join(buildWithMoreRules(t), 'postgres/index.js');
    const { openPostgresStore, readPostgresPlants } = (await import(path)) as typeof Postgres;
    const stored = { id: 1n, name: 'fern' };
    t.strictSame(await collect(readPostgresPlants({ url })), [stored]);
    const store = await openPostgresStore({ url });
    t.strictSame(await collect(store.plants()), [stored]);
    t.strictSame(await store.get(1n), stored);
    await t.rejects(store.add({ ...stored, id: 2n }), TypeError);
    await t.rejects(store.add({ ...stored, tag: 'another' }), { code: 'conflict' });
    await store.close();
  });

  t.test('a reading that ends, is abandoned or fails leaves no connection', async (t) => {
    const url = await created(TABLE.replace('name text', 'name text NOT NULL'), ONE);
    const store = await openStore(t, { url });
    const sockets = (): number =>
      process.getActiveResourcesInfo().filter((each) => each.startsWith('TCPSocket')).length;
    const before = sockets();
    /** Checks the number of sockets once the event loop has had the time to close one. */
    async function expectAsBefore(what: string): Promise<void> {
      for (let turns = 0; turns < 1_000 && sockets() > before; turns++) await nextTurn();
      t.equal(sockets(), before, what);
    }
    const readings = [() => store.plants(), () => readPostgresPlants({ url })];
    const none = { code: 'unavailable', message: /is not a plant/ };
    for (const read of readings) {
      t.equal((await collect(read())).length, 1);
      await expectAsBefore('it has ended');
      for await (const { id } of read()) {
        t.equal(id, 1n);
        break;
      }
      await expectAsBefore('it was abandoned');
      await query(url, `UPDATE plants SET exact = '{}'`);
      await t.rejects(collect(read()), none);
      await expectAsBefore('it has failed');
      await query(url, 'UPDATE plants SET exact = NULL');
    }
    await cluster.untilFound(`SELECT FROM pg_stat_activity
      WHERE application_name = 'plant-store' HAVING count(*) = 2`);
  });
});
