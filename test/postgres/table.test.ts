import t, { type Test } from 'tap';

import { openPostgresStore } from '../../dist/postgres/index.js';
import { FERN, IVY } from '../helpers/plants.js';
import { missing, query, startCluster } from './cluster.js';
import { addUntilStored, openStore } from './support.js';

const COLUMNS = '(id bigint PRIMARY KEY, name text NOT NULL, tag text, exact text)';
const TABLE = `CREATE TABLE plants ${COLUMNS}`;
const PARTITIONED = `${TABLE} PARTITION BY RANGE (id)`;
const NEGATIVE = 'FOR VALUES FROM (MINVALUE) TO (0)';
const OTHERS = 'FOR VALUES FROM (0) TO (MAXVALUE)';

type Losing = [create: string, change: string, mend: string];

/** A table that is as good as the one that the store creates, what makes it lose plants, and what mends that. */
const LOSING: Record<string, Losing> = {
  'it is unlogged': [TABLE, 'ALTER TABLE plants SET UNLOGGED', 'ALTER TABLE plants SET LOGGED'],
};

for (const setting of ['fsync', 'synchronous_commit'])
  LOSING[setting] = [TABLE, `ALTER SYSTEM SET ${setting} = off`, `ALTER SYSTEM RESET ${setting}`];

/** The same, but only a new session asks for it. */
const LOSING_LATER: Record<string, Losing> = {
  'a partition of a partition is unlogged': [
    `${PARTITIONED}; CREATE TABLE a PARTITION OF plants ${OTHERS};
    CREATE TABLE b PARTITION OF plants ${NEGATIVE} PARTITION BY RANGE (id)`,
    'CREATE UNLOGGED TABLE c PARTITION OF b DEFAULT',
    'ALTER TABLE c SET LOGGED',
  ],
  'it is a view of an unlogged table': [
    TABLE,
    `ALTER TABLE plants RENAME TO other; ALTER TABLE other SET UNLOGGED;
    CREATE VIEW plants AS TABLE other`,
    `DROP VIEW plants; ALTER TABLE other SET LOGGED; ALTER TABLE other RENAME TO plants`,
  ],
  'it has a child, in which an id may be used again': [
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
  ['id', 'double precision', 'bigint'],
  ['name', 'character(20)', 'text'],
  ['tag', 'character varying(5)', 'text'],
  ['exact', 'json', 'text'],
];

/** What is not asked for beforehand, because the server refuses each plant with an error of its own. */
const LOUD: Record<string, [change: string, message: RegExp]> = {
  'a deferrable key': [
    'ALTER TABLE plants DROP CONSTRAINT plants_pkey, ADD PRIMARY KEY (id) DEFERRABLE',
    /deferrable unique constraints/,
  ],
  'row-level security that hides plants': [
    `ALTER TABLE plants ENABLE ROW LEVEL SECURITY;
    ALTER TABLE plants FORCE ROW LEVEL SECURITY; ALTER ROLE CURRENT_USER NOSUPERUSER;
    CREATE POLICY p ON plants USING (name <> '${IVY.name}') WITH CHECK (true)`,
    /row-level security/,
  ],
};

t.test('the table and its server', { skip: missing() }, async (t) => {
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

  t.test('nothing is acknowledged, and no store opens, while it can be lost', async (t) => {
    const refused = { code: 'unavailable', message: /can lose plants$/ };
    for (const [what, [create, change, mend]] of Object.entries({ ...LOSING, ...LOSING_LATER })) {
      const url = await created(create);
      const store = await openStore(t, { url, connections: 1 });
      t.equal(await store.add(FERN), 'created', what);
      await query(url, change);
      await cluster.reload();
      await t.rejects(store.check(), refused, what);
      if (what in LOSING_LATER) {
        await cluster.endSessions();
        // The store may notice only now that its session has ended.
        await store.add(FERN).catch(() => undefined);
      }
      for (const plant of [FERN, IVY]) await t.rejects(store.add(plant), refused, what);
      await t.rejects(openPostgresStore({ url }), refused, what);
      const careless = await openStore(t, { url, acceptDataLoss: true });
      await t.resolves(careless.add(IVY), 'unless data loss is accepted');
      await query(url, mend);
      await cluster.reload();
      t.equal(await addUntilStored(store, FERN), 'unchanged', what);
    }
  });

  t.test('a permanent table is accepted', async (t) => {
    for (const [kind, sql] of Object.entries(PERMANENT))
      await isAccepted(t, await created(sql), kind);
  });

  t.test('a column that would change plants is refused', async (t) => {
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
    await t.rejects(store.check(), { code: 'unavailable', message });
  });

  t.test('nothing is acknowledged if the server refuses each plant, or hides it', async (t) => {
    for (const [what, [change, message]] of Object.entries(LOUD)) {
      const url = await created(TABLE);
      t.equal(await (await openStore(t, { url })).add(IVY), 'created', what);
      await query(url, change);
      const store = await openStore(t, { url });
      for (const plant of [IVY, { ...IVY, id: 9n }])
        await t.rejects(store.add(plant), { code: 'unavailable' }, what);
      t.match(store.reports.at(-1), message, what);
    }
  });
});
