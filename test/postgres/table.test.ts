import t, { type Test } from 'tap';

import { openPostgresStore } from '../../dist/postgres/index.js';
import { missing, query, startCluster } from './cluster.js';
import { addUntilStored, FERN, IVY, openStore } from './support.js';

const COLUMNS = '(id bigint PRIMARY KEY, name text NOT NULL, tag text, exact text)';
const TABLE = `CREATE TABLE plants ${COLUMNS}`;
const PARTITIONED = `${TABLE} PARTITION BY RANGE (id)`;
const NEGATIVE = 'FOR VALUES FROM (MINVALUE) TO (0)';
const OTHERS = 'FOR VALUES FROM (0) TO (MAXVALUE)';

/** A table that is as good as the one that the store creates, how it can lose plants, and what mends it. */
const LOSING: Record<string, [create: string, change: string, mend: string]> = {
  'an unlogged table': [TABLE, 'ALTER TABLE plants SET UNLOGGED', 'ALTER TABLE plants SET LOGGED'],
  'an unlogged partition': [
    `${PARTITIONED}; CREATE TABLE a PARTITION OF plants ${OTHERS}`,
    `CREATE UNLOGGED TABLE b PARTITION OF plants ${NEGATIVE}`,
    'ALTER TABLE b SET LOGGED',
  ],
  'an unlogged partition of a partition': [
    `${PARTITIONED}; CREATE TABLE a PARTITION OF plants ${OTHERS};
    CREATE TABLE b PARTITION OF plants ${NEGATIVE} PARTITION BY RANGE (id)`,
    'CREATE UNLOGGED TABLE c PARTITION OF b DEFAULT',
    'ALTER TABLE c SET LOGGED',
  ],
  'a view of an unlogged table': [
    TABLE,
    `ALTER TABLE plants RENAME TO other; ALTER TABLE other SET UNLOGGED;
    CREATE VIEW plants AS TABLE other`,
    `DROP VIEW plants; ALTER TABLE other SET LOGGED; ALTER TABLE other RENAME TO plants`,
  ],
  'a foreign table': [
    TABLE,
    `ALTER TABLE plants RENAME TO other; CREATE FOREIGN DATA WRAPPER elsewhere;
    CREATE SERVER elsewhere FOREIGN DATA WRAPPER elsewhere;
    CREATE FOREIGN TABLE plants (id bigint, name text, tag text, exact text) SERVER elsewhere`,
    `DROP FOREIGN DATA WRAPPER elsewhere CASCADE; ALTER TABLE other RENAME TO plants`,
  ],
  'a table with a child, in which an id may be used again': [
    TABLE,
    'CREATE TABLE child () INHERITS (plants)',
    'DROP TABLE child',
  ],
};

/** Tables that are as good as the one that the store creates. */
const PERMANENT: Record<string, string> = {
  'a partitioned table': `${PARTITIONED}; CREATE TABLE a PARTITION OF plants ${NEGATIVE};
    CREATE TABLE b PARTITION OF plants ${OTHERS} PARTITION BY RANGE (id);
    CREATE TABLE c PARTITION OF b DEFAULT`,
  'a partition of another table': `CREATE TABLE other ${COLUMNS} PARTITION BY RANGE (id);
    CREATE TABLE plants PARTITION OF other DEFAULT`,
  'a table that inherits its columns': `CREATE UNLOGGED TABLE other (id bigint, name text, tag text);
    CREATE TABLE plants (exact text, PRIMARY KEY (id)) INHERITS (other)`,
};

/** Columns that would change plants, or refuse them. */
const CHANGING: readonly [column: string, type: string, right: string][] = [
  ['id', 'integer', 'bigint'],
  ['id', 'double precision', 'bigint'],
  ['id', 'numeric', 'bigint'],
  ['name', 'name', 'text'],
  ['name', 'character(20)', 'text'],
  ['tag', 'character varying(5)', 'text'],
  ['exact', 'json', 'text'],
];

/** What is not asked for beforehand, because the server refuses each plant with an error of its own. */
const LOUD: Record<string, [create: string, message: RegExp]> = {
  'a deferrable key': [TABLE.replace('KEY', 'KEY DEFERRABLE'), /deferrable unique constraints/],
  'a second key that is deferrable': [
    `${TABLE}; ALTER TABLE plants ADD UNIQUE (id) DEFERRABLE`,
    /deferrable unique constraints/,
  ],
  'row-level security that hides plants': [
    `${TABLE}; ALTER TABLE plants ENABLE ROW LEVEL SECURITY;
    ALTER TABLE plants FORCE ROW LEVEL SECURITY; ALTER ROLE CURRENT_USER NOSUPERUSER;
    CREATE POLICY p ON plants USING (name <> 'Ivy') WITH CHECK (true)`,
    /row-level security/,
  ],
};

t.test('the table', { skip: missing() }, async (t) => {
  const cluster = await startCluster(t);

  async function created(sql: string): Promise<string> {
    const url = await cluster.createSchema();
    await query(url, sql);
    return url;
  }

  async function isAccepted(t: Test, url: string, what: string): Promise<void> {
    const store = await openStore(t, { url });
    t.equal(await store.add(FERN), 'created', what);
    t.equal(await store.add(FERN), 'unchanged', what);
  }

  const refused = { code: 'unavailable', message: /can lose plants$/ };

  t.test('acknowledges nothing, and opens no store, while it can lose plants', async (t) => {
    for (const [kind, [create, change, mend]] of Object.entries(LOSING)) {
      const url = await created(create);
      const store = await openStore(t, { url, connections: 1 });
      t.equal(await store.add(FERN), 'created', kind);
      await query(url, change);
      await t.rejects(openPostgresStore({ url }), refused, kind);
      if (kind !== 'a foreign table') {
        for (const plant of [FERN, IVY]) await t.rejects(store.add(plant), refused, kind);
        await t.rejects(store.check(), refused, kind);
        const careless = await openStore(t, { url, acceptDataLoss: true });
        await t.resolves(careless.add(IVY), 'unless data loss is accepted');
      }
      await query(url, mend);
      t.equal(await addUntilStored(store, FERN), 'unchanged', kind);
    }
  });

  t.test('is accepted if it is permanent', async (t) => {
    for (const [kind, sql] of Object.entries(PERMANENT))
      await isAccepted(t, await created(sql), kind);
  });

  t.test('is refused if a column would change plants', async (t) => {
    for (const [column, type, right] of CHANGING) {
      const url = await created(
        `${TABLE}; ALTER TABLE plants ALTER ${column} TYPE ${type} USING NULL`,
      );
      const message = RegExp(`: the column ${column} must be of the type ${right}$`);
      for (const acceptDataLoss of [false, true])
        await t.rejects(openPostgresStore({ url, acceptDataLoss }), { message }, type);
      await query(url, `ALTER TABLE plants ALTER ${column} TYPE ${right} USING NULL`);
      await isAccepted(t, url, type);
    }
    const url = await created(TABLE);
    const store = await openStore(t, { url });
    await query(url, 'ALTER TABLE plants ALTER name TYPE name');
    const message = /: the column name must be of the type text/;
    await t.rejects(store.add({ id: 7n, name: 'x'.repeat(100) }), { code: 'unavailable', message });
  });

  t.test('acknowledges nothing if the server refuses each plant', async (t) => {
    for (const [what, [create, message]] of Object.entries(LOUD)) {
      const store = await openStore(t, { url: await created(create) });
      for (let times = 0; times < 2; times++)
        await t.rejects(store.add(IVY), { code: 'unavailable', message }, what);
      t.match(store.reports[0], message, what);
    }
  });

  t.test('may hide rows, and their plants are not called unchanged', async (t) => {
    const url = await created(TABLE);
    t.equal(await (await openStore(t, { url })).add(IVY), 'created');
    await query(url, LOUD['row-level security that hides plants']?.[0].replace(TABLE, '') ?? '');
    await t.rejects((await openStore(t, { url })).add(IVY), { code: 'unavailable' });
  });

  t.test('may have a deferrable key of another column; only what it refuses fails', async (t) => {
    const url = await created(
      `${TABLE}; ALTER TABLE plants ADD UNIQUE (name) DEFERRABLE INITIALLY DEFERRED`,
    );
    const store = await openStore(t, { url, connections: 1 });
    const plants = [FERN, IVY, { ...FERN, id: 9n }, { id: 10n, name: 'Moss' }];
    const outcomes = await Promise.allSettled(plants.map((plant) => store.add(plant)));
    const statuses = outcomes.map(({ status }) => status);
    t.strictSame(statuses, ['fulfilled', 'fulfilled', 'rejected', 'fulfilled']);
  });
});
