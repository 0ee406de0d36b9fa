import { AsyncLocalStorage } from 'node:async_hooks';
import { execFile } from 'node:child_process';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { existsSync, readFileSync } from 'node:fs';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { promisify } from 'node:util';

import pg from 'pg';
import t from 'tap';

import type { CommitMessage, NewPlant } from '../../dist/index.js';
import { openPostgresStore } from '../../dist/postgres/index.js';
import { rowsOf } from '../../dist/postgres/rows.js';
import { COMPARE, PAGE } from '../../dist/postgres/statements.js';
import { storeContract } from '../../dist/store-contract.js';
import { codeOf } from '../../dist/system-error.js';
import { exactly } from '../helpers/exactly.js';
import { FERN, IVY, MOSS, PLANTS_OF_EACH_SHAPE, plantsNamed } from '../helpers/plants.js';
import { collect } from '../helpers/stores.js';
import { begin, missingForServers, query, startCluster, createTrigger, until } from './cluster.js';
import { openStore, plantsFrom } from './support.js';

/** The TCP sockets of this machine, and their timers, if it runs Linux. */
const SOCKETS = '/proc/net/tcp';

t.test('an option that is not valid is refused', async (t) => {
  const url = 'postgres://user:secret@host/plants';
  const invalid: [options: object, name: string, message: RegExp][] = [
    [{ url: `${url}?schema=garden` }, 'TypeError', /^the URL has the parameter "schema"/],
    [{ report: 'x' }, 'TypeError', /^report: must be a function$/],
    [{ password: null }, 'TypeError', /^password: must be a string or a function$/],
  ];
  for (const connections of [0, 1_001])
    invalid.push([{ connections }, 'RangeError', /^connections: must be an integer/]);
  for (const timeoutMs of [0, 2 ** 31])
    invalid.push([{ timeoutMs }, 'RangeError', /^timeoutMs: must be an integer/]);
  for (const [options, name, message] of invalid)
    await t.rejects(openPostgresStore({ url, ...options }), { name, message });
});

t.test('on PostgreSQL', { skip: missingForServers() }, async (t) => {
  const cluster = await startCluster(t);

  t.test('the contract of a store holds, whatever parsers others have given to pg', async (t) => {
    const { INT8 } = pg.types.builtins;
    t.teardown(() => pg.types.setTypeParser(INT8, String));
    pg.types.setTypeParser(INT8, () => 'seven');
    for (const { name, check } of storeContract)
      t.test(name, (t) =>
        t.resolves(check(async () => openPostgresStore({ url: await cluster.createSchema() }))),
      );
  });

  t.test(
    'the contract of a store holds in a table that takes different names for the same',
    async (t) => {
      const COLLATION = `CREATE COLLATION any_case
      (provider = icu, locale = 'und-u-ks-level1', deterministic = false)`;
      const TABLE = `CREATE TABLE plants (id bigint PRIMARY KEY, name text COLLATE any_case NOT NULL,
      tag text COLLATE any_case, exact text COLLATE any_case)`;
      for (const { name, check } of storeContract)
        await t.resolves(
          check(async () => {
            const url = await cluster.createSchema();
            await query(url, `${COLLATION}; ${TABLE}`);
            return openPostgresStore({ url });
          }),
          name,
        );
      const url = await cluster.createSchema();
      await query(url, `${COLLATION}; ${TABLE}`);
      const store = await openStore(t, { url });
      t.equal(await store.add(FERN), 'created');
      for (const plant of [
        { ...FERN, name: 'FERN' },
        { ...FERN, tag: FERN.tag?.toUpperCase() },
      ])
        await t.rejects(store.add(plant as NewPlant), { code: 'conflict' });
    },
  );

  t.test('get reads plants exactly, and concurrent calls share a query', async (t) => {
    const url = await cluster.createSchema('log_min_duration_statement = 0');
    const store = await openStore(t, { url });
    const plants: NewPlant[] = [
      { id: -(2n ** 63n), name: '', tag: '' },
      ...[FERN, MOSS, ...PLANTS_OF_EACH_SHAPE],
      { id: 2n ** 63n - 1n, name: '\0' },
    ];
    t.equal(await store.get(7n), undefined);
    await Promise.all(plants.map((plant) => store.add(plant)));
    const ids = plants.map(({ id }) => id);
    const got = await Promise.all([...ids, 5n, ...ids].map((id) => store.get(id)));
    t.strictSame(got, [...plants, undefined, ...plants]);
    t.equal([...cluster.log().matchAll(/ execute find: /g)].length, 2);
    await query(url, `UPDATE plants SET exact = '{}' WHERE id = 7`);
    const [bad, good] = await Promise.allSettled([store.get(7n), store.get(9n)]);
    const message = /: the row with the id 7 is not a plant: name: must be a string$/;
    t.match(bad, { reason: { code: 'unavailable', message } });
    t.match(good, { value: MOSS });
    await store.close();
    await t.rejects(store.get(7n), { code: 'unavailable', message: /: the store is closed$/ });
    await t.rejects(store.get(7 as never), TypeError);
    for (const id of [2n ** 63n, -(2n ** 63n) - 1n]) await t.rejects(store.get(id), RangeError);
  });

  t.test('get reads plants again after a query that has failed', async (t) => {
    const url = await cluster.createSchema();
    const store = await openStore(t, { url });
    await store.add(FERN);
    await query(url, 'ALTER TABLE plants RENAME TO others');
    const failing = await Promise.allSettled([store.get(FERN.id), store.get(IVY.id)]);
    const failed = { reason: { code: 'unavailable', message: /"plants" does not exist$/ } };
    t.match(failing, exactly(failed, failed));
    await query(url, 'ALTER TABLE others RENAME TO plants');
    t.strictSame(await store.get(FERN.id), FERN);
  });

  t.test('plants are ordinary rows, but for strings that PostgreSQL cannot hold', async (t) => {
    const url = await cluster.createSchema();
    const store = await openStore(t, { url });
    const plants: NewPlant[] = [
      FERN,
      { id: 9n, name: '\0', tag: 'a\ud800b' },
      { id: 10n, name: 'é😀', tag: '\0' },
    ];
    for (const plant of plants) await store.add(plant);
    t.strictSame(await query(url, 'SELECT id::int, name, tag, exact FROM plants ORDER BY id'), [
      { ...FERN, id: 7, exact: null },
      { id: 9, name: '\ufffd', tag: 'a\ufffdb', exact: '{"name":"\\u0000","tag":"a\\ud800b"}' },
      { id: 10, name: 'é😀', tag: '\ufffd', exact: '{"name":"é😀","tag":"\\u0000"}' },
    ]);
    const shapes = PLANTS_OF_EACH_SHAPE.flatMap((plant) => [
      { ...plant, id: 2n * plant.id },
      { ...plant, id: 2n * plant.id + 1n, name: '\0' },
    ]);
    for (const plant of shapes) await store.add(plant);
    const all = [...plants, ...shapes];
    t.strictSame(await collect(store.plants()), all);
    for (const plant of all) t.equal(await store.add(plant), 'unchanged');
  });

  t.test('plants are read in pages, from the least id to the greatest', async (t) => {
    const url = await cluster.createSchema();
    const store = await openStore(t, { url });
    const large = 'x'.repeat(3_000_000);
    const plants: NewPlant[] = [
      { id: -(2n ** 63n), name: 'first' },
      ...plantsFrom(0, 10_001),
      ...plantsFrom(20_000, 5).map(({ id }) => ({ id, name: large })),
      { id: 2n ** 63n - 1n, name: 'last' },
    ];
    await Promise.all(plants.map((plant) => store.add(plant)));
    t.strictSame(await collect(store.plants()), plants);
    // A page holds 10,000 plants, or fewer: it ends with the plant whose strings bring it to 1 MiB.
    for (const [first, length] of [
      [0, 10_000],
      [20_000, 1],
    ] as const)
      t.equal((await query(url, PAGE.text.replace('$1', `${first}`))).length, length);
    const batch = rowsOf([{ id: 20_000n, name: 'small' }]);
    const compared = await query(url, COMPARE.text.replace('$1', `'${batch}'`));
    t.ok(JSON.stringify(compared).length < 100, 'a comparison does not transfer the rows');
  });

  t.test('a store has 2 connections, one for checks, and one for each reading', async (t) => {
    const url = await cluster.createSchema();
    const store = await openStore(t, { url });
    for (const plant of [FERN, IVY]) await store.add(plant);
    const { username } = new URL(url);
    const processes = `FROM pg_stat_activity WHERE usename = '${username}'`;
    const connections = async () => (await cluster.sql(`SELECT ${processes}`)).length;
    t.equal(await connections(), 2, 'by default');
    for (let checks = 0; checks < 2; checks++) await store.check();
    t.equal(await connections(), 3);
    for await (const plant of store.plants()) {
      t.strictSame(plant, FERN);
      break;
    }
    await cluster.untilFound(`SELECT ${processes} HAVING count(*) = 3`);
    const next = () => store.plants()[Symbol.asyncIterator]().next();
    t.strictSame(await next(), { done: false, value: FERN });
    t.equal(await connections(), 4, 'a reading that is abandoned keeps its own');
    const refused = { code: 'unavailable', message: /: the store is closed$/ };
    const ended = t.rejects(next(), refused, 'its connection was being opened');
    await store.close();
    await ended;
    await t.rejects(collect(store.plants()), refused);
    await cluster.untilFound(`SELECT WHERE NOT EXISTS (SELECT ${processes})`);
  });

  t.test('a connection that has ended meanwhile is replaced before a plant is sent', async (t) => {
    const sockets = () =>
      process.getActiveResourcesInfo().filter((each) => each.startsWith('TCPSocket'));
    const before = sockets();
    const store = await openStore(t, { url: await cluster.createSchema(), connections: 1 });
    t.equal(await cluster.endSessions(), 1);
    await until(() => sockets().length === before.length);
    t.equal(await store.add(FERN), 'created');
    t.strictSame(store.reports, []);
  });

  const noSockets = existsSync(SOCKETS) ? false : `there is no ${SOCKETS}`;
  t.test(
    'connections are kept alive, so that a lost machine ends them',
    { skip: noSockets },
    async (t) => {
      await openStore(t, { url: await cluster.createSchema(), connections: 1 });
      const port = cluster.port.toString(16).toUpperCase().padStart(4, '0');
      // An established connection to this port. Timer 02 is keepalive, and timer 01 a
      // retransmission.
      const connection = new RegExp(`:${port} 01 \\S+ (0[02]):`);
      let timer: string | undefined;
      await until(() => {
        timer = connection.exec(readFileSync(SOCKETS, 'utf8'))?.[1];
        return timer !== undefined;
      });
      t.equal(timer, '02');
    },
  );

  t.test('by default, a store reports to the console', async (t) => {
    const reported = t.capture(console, 'error', () => undefined);
    const store = await openPostgresStore({ url: await cluster.createSchema(), timeoutMs: 60_000 });
    await store.close();
    t.match(reported.args().flat(), exactly(/: the table plants was missing; an empty one was/));
  });

  t.test('refused plants are reported 10 times in 10 s, and hide no outage', async (t) => {
    t.intercept(performance, 'now', { value: () => 0 });
    const url = await cluster.createSchema();
    const store = await openStore(t, { url });
    await createTrigger(url, `RAISE 'a weed';`);
    for (let n = 0; n < 12; n++) await t.rejects(store.add(FERN), { code: 'unavailable' });
    t.match(
      store.reports.splice(0),
      exactly(...Array<RegExp>(10).fill(/refuses a plant: a weed$/)),
    );
    await createTrigger(url, `RAISE 'no room' USING ERRCODE = '53100';`);
    await t.rejects(store.add(FERN), { code: 'unavailable' });
    await createTrigger(url, 'RETURN NEW;');
    t.equal(await store.add(FERN), 'created');
    t.match(store.reports, exactly(/no room; plants are refused/, /stored again$/));
  });

  t.test('Node warns of no leak, however many connections a store has', async (t) => {
    const warnings: Error[] = [];
    const warned = (warning: Error): unknown => warnings.push(warning);
    process.on('warning', warned);
    t.teardown(() => process.off('warning', warned));
    await openStore(t, { url: await cluster.createSchema(), connections: 12 });
    await nextTurn();
    t.strictSame(warnings, []);
  });

  t.test('every answer is true, and nothing deadlocks, at any isolation level', async (t) => {
    for (const level of ['read committed', 'repeatable read', 'serializable']) {
      const url = await cluster.createSchema(`default_transaction_isolation = '${level}'`);
      const stores = await Promise.all([0, 1, 2, 3].map(() => openStore(t, { url })));
      // Each store adds the plants in another order. Plants with the same id have two different
      // names.
      const adding = stores.flatMap((store, n) =>
        Array.from({ length: 2_000 }, async (_, m) => {
          const id = BigInt((m * (7_919 + 2 * n)) % 503);
          const name = `variant ${(n + m) % 2}`;
          return { id, name, outcome: await store.add({ id, name }).catch(codeOf) };
        }),
      );
      const answers = await Promise.all(adding);
      const rows = await query(url, 'SELECT id, name FROM plants');
      const stored = new Map(rows.map(({ id, name }) => [id, name]));
      const wrong = answers.filter(({ id, name, outcome }) =>
        stored.get(String(id)) === name ? outcome === 'conflict' : outcome !== 'conflict',
      );
      t.strictSame(wrong, [], level);
      t.equal(answers.filter(({ outcome }) => outcome === 'created').length, 503, level);
    }
    t.notMatch(cluster.log(), /deadlock detected/);
  });

  t.test('rows are locked in the order of ids, so that servers do not deadlock', async (t) => {
    // With these settings, the server finds rows in the order in which they were inserted.
    const url = await cluster.createSchema('enable_indexscan = off', 'enable_bitmapscan = off');
    // The lock_timeout of the store is 12 s, which a busy machine does not exceed.
    const store = await openStore(t, { url, timeoutMs: 600_000, connections: 1 });
    for (const plant of [IVY, FERN]) await store.add(plant);
    const release = await begin(t, url, 'SELECT FROM plants WHERE id = 7 FOR UPDATE');
    const adding = [store.add(IVY), store.add(FERN)];
    await cluster.untilFound(
      'SELECT FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0',
    );
    await t.resolves(query(url, 'SELECT FROM plants WHERE id = 8 FOR UPDATE NOWAIT'));
    await release();
    t.strictSame(await Promise.all(adding), ['unchanged', 'unchanged']);
  });

  t.test('checks store nothing, and concurrent ones share one statement', async (t) => {
    const logged = cluster.log().length;
    const url = await cluster.createSchema('log_min_duration_statement = 0');
    const store = await openStore(t, { url, connections: 1 });
    // Opening the store has made one check.
    for (const count of [2, 3]) {
      await Promise.all(Array.from({ length: 50 }, () => store.check()));
      t.equal(
        [
          ...cluster
            .log()
            .slice(logged)
            .matchAll(/ execute check: /g),
        ].length,
        count,
      );
    }
    t.strictSame(await query(url, 'TABLE plants'), []);
    const checking = store.check();
    await store.close();
    await checking;
    const message = /^127\.0\.0\.1:\d+\/\w+: the store is closed$/;
    await t.rejects(store.check(), { code: 'unavailable', message });
  });

  t.test('each batch is published with the number of new plants', async (t) => {
    const url = await cluster.createSchema();
    const contexts = new AsyncLocalStorage<string>();
    const store = await contexts.run('open', () => openStore(t, { url, connections: 1 }));
    const seen: [plants: number, code?: unknown][] = [];
    const note = (message: unknown): void => {
      const { plants, durationMs, error, ...more } = message as CommitMessage;
      t.ok(durationMs > 0);
      t.strictSame({ ...more, in: contexts.getStore() }, { store: store.name, in: 'open' });
      seen.push(error ? [plants, codeOf(error)] : [plants]);
    };
    subscribe('plant-store:commit', note);
    t.teardown(() => unsubscribe('plant-store:commit', note));
    /**
     * Adds plants in one batch. Resolves to the published numbers of new plants, and to the
     * published errors.
     */
    async function published(...plants: readonly NewPlant[]) {
      await Promise.allSettled(plants.map((plant) => contexts.run('add', () => store.add(plant))));
      return seen.splice(0);
    }

    t.strictSame(await published(FERN, IVY), [[2]]);
    const others = [
      { ...IVY, name: 'another' },
      { id: 1n, name: 'new' },
    ];
    t.strictSame(await published(FERN, IVY, ...others), [[1]]);
    await query(url, `ALTER TABLE plants ADD CHECK (name <> 'weed')`);
    const weed = { id: 2n, name: 'weed' };
    t.strictSame(await published(weed), [[0, '23514']]);
    const one = await published(weed, { id: 3n, name: 'new' });
    t.strictSame(one, [[0, '23514'], [0, '23514'], [1]]);
    await begin(t, url, 'SELECT FROM plants WHERE id = 7 FOR UPDATE');
    // The comparison of the batch fails, and then the comparison of one plant.
    const compared = await published(FERN, IVY, { id: 4n, name: 'new' });
    t.strictSame(compared, [[1, '55P03'], [0, '55P03'], [0]]);
  });

  t.test('a row that another program has changed is compared as it is', async (t) => {
    const url = await cluster.createSchema();
    const store = await openStore(t, { url });
    const plants = plantsNamed('a', 'b', 'c\0');
    await Promise.all(plants.map((plant) => store.add(plant)));
    await query(url, `UPDATE plants SET exact = '' WHERE id = 2`);
    const outcomes = await Promise.allSettled(plants.map((plant) => store.add(plant)));
    const unchanged = { value: 'unchanged' };
    t.match(outcomes, exactly(unchanged, { reason: { code: 'conflict' } }, unchanged));
    t.strictSame(store.reports, []);
    await t.rejects(collect(store.plants()), {
      code: 'unavailable',
      message: /^127\.0\.0\.1:\d+\/.*JSON/,
    });
  });

  t.test('rows that the server does not keep are not acknowledged', async (t) => {
    const url = await cluster.createSchema();
    const store = await openStore(t, { url });
    await createTrigger(
      url,
      `IF NEW.name = 'lost' THEN RETURN NULL; END IF;
      IF NEW.name = 'moved' THEN NEW.id = -1; END IF;
      RAISE WARNING 'a plant'; RETURN NEW;`,
    );
    const outcomes = plantsNamed('lost', 'moved', 'kept').map((plant) => store.add(plant));
    const refused = { reason: { code: 'unavailable', message: /neither inserted nor found; / } };
    t.match(await Promise.allSettled(outcomes), exactly(refused, refused, { value: 'created' }));
    t.match(store.reports, exactly(/the database refuses a plant: .* a trigger may skip it/));
  });

  t.test('a statement is sent again if it was rolled back, but not forever', async (t) => {
    const url = await cluster.createSchema();
    const store = await openStore(t, { url });
    await query(url, 'CREATE SEQUENCE tries');
    async function failing(times: number, how: string): Promise<void> {
      await query(url, 'ALTER SEQUENCE tries RESTART');
      await createTrigger(url, `IF nextval('tries') <= ${times} THEN ${how}; END IF; RETURN NEW;`);
    }
    await failing(9, `RAISE SQLSTATE '40001'`);
    t.equal(await store.add({ ...FERN, id: 2n }), 'created');
    t.strictSame(store.reports, []);
    await failing(10, `RAISE SQLSTATE '40001'`);
    await t.rejects(store.add({ ...FERN, id: 3n }), { code: 'unavailable' });
    t.match(store.reports, exactly(/the database refuses a plant/));
  });

  t.test('a batch holds at most 2,000 plants, or those that reach 4 MiB', async (t) => {
    const url = await cluster.createSchema();
    const store = await openStore(t, { url, connections: 1 });
    const large = plantsFrom(4_500, 4).map(({ id }) => ({ id, name: 'x'.repeat(1_500_000) }));
    const plants = [...plantsFrom(0, 4_500), ...large];
    await Promise.all(plants.map((plant) => store.add(plant)));
    // xmin is the transaction that inserted a row.
    const batches = await query(url, 'SELECT count(*)::int AS n FROM plants GROUP BY xmin::text');
    t.strictSame(batches.map(({ n }) => n).toSorted(), [1, 2_000, 2_000, 503]);
  });

  t.test('a plant whose JSON is too long for a string is refused alone', async (t) => {
    const store = await openStore(t, { url: await cluster.createSchema() });
    const endless = { id: 8n, name: '\0'.repeat(90_000_000) };
    const outcomes = await Promise.allSettled([endless, IVY].map((plant) => store.add(plant)));
    t.match(outcomes, exactly({ reason: RangeError }, { value: 'created' }));
  });

  t.test('a plant that has waited longer than the limit for a connection is refused', async (t) => {
    let now = 0;
    t.intercept(performance, 'now', { value: () => now });
    const url = await cluster.createSchema();
    // The lock_timeout of the store is 12 s.
    const store = await openStore(t, { url, connections: 1, timeoutMs: 600_000 });
    const release = await begin(t, url, `INSERT INTO plants VALUES (${FERN.id}, 'a name')`);
    const first = store.add(FERN);
    await cluster.untilFound(
      'SELECT FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0',
    );
    const late = t.rejects(store.add(IVY), { code: 'unavailable', message: /too slow$/ });
    now = 1;
    const inTime = store.add(MOSS);
    now = 600_001;
    await release();
    t.strictSame(await Promise.all([first, inTime]), ['created', 'created']);
    await late;
    t.equal(await store.add(IVY), 'created');
  });

  t.test('a store works in a hardened process, and ignores the environment', async (t) => {
    const isKnown = (flag: string): boolean => process.allowedNodeEnvironmentFlags.has(flag);
    const flags = [
      ...['--disallow-code-generation-from-strings', '--frozen-intrinsics', '--allow-fs-read=*'],
      isKnown('--permission') ? '--permission' : '--experimental-permission',
      ...['--allow-net'].filter(isKnown),
    ];
    const env = {
      ...{ PGHOST: '192.0.2.1', PGPORT: '1', PGDATABASE: 'other', PGUSER: 'other', USER: 'other' },
      ...{ PGSSLMODE: 'require', PGSSLNEGOTIATION: 'direct', PGCLIENT_ENCODING: 'LATIN1' },
      ...{ PGAPPNAME: 'other', PGCONNECT_TIMEOUT: '1', PGBINARY: 'true', PGPASSFILE: '/x' },
    };
    const script = `import { openPostgresStore } from './dist/postgres/index.js';
      const store = await openPostgresStore({ url: '${await cluster.createSchema()}' });
      console.log(await store.add({ id: 7n, name: 'fern' }));
      await store.close();`;
    const args = [...flags, '--input-type=module', '--eval', script];
    const { stdout } = await promisify(execFile)(process.execPath, args, { env });
    t.equal(stdout, 'created\n');
  });

  t.test('plants are stored over a Unix socket', async (t) => {
    const host = `${encodeURIComponent(cluster.folder)}:${cluster.port}`;
    const store = await openStore(t, { url: `postgres://postgres@${host}/postgres` });
    t.equal(await store.add(FERN), 'created');
  });
});
