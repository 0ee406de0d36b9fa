import t from 'tap';

import { openPostgresStore } from '../../dist/postgres/index.js';
import { missing, query, startCluster } from './cluster.js';
import { addUntilStored, FERN, IVY, openStore } from './support.js';

const COLUMNS = '(id bigint PRIMARY KEY, name text NOT NULL, tag text, exact text)';
const PARTITIONED = `CREATE TABLE plants ${COLUMNS} PARTITION BY RANGE (id)`;
const NEGATIVE = 'FOR VALUES FROM (MINVALUE) TO (0)';
const OTHERS = 'FOR VALUES FROM (0) TO (MAXVALUE)';
const SERVER = `CREATE FOREIGN DATA WRAPPER elsewhere; CREATE SERVER elsewhere FOREIGN DATA WRAPPER elsewhere`;

/** Tables that can lose plants, and what makes them permanent. */
const LOSING: Record<string, [create: string, mend: string]> = {
  'an unlogged table': [`CREATE UNLOGGED TABLE plants ${COLUMNS}`, 'ALTER TABLE plants SET LOGGED'],
  'a partitioned table with an unlogged partition': [
    `${PARTITIONED}; CREATE TABLE a PARTITION OF plants ${NEGATIVE};
    CREATE UNLOGGED TABLE b PARTITION OF plants ${OTHERS}`,
    'ALTER TABLE b SET LOGGED',
  ],
  'a partitioned table with an unlogged partition of a partition': [
    `${PARTITIONED}; CREATE TABLE a PARTITION OF plants ${NEGATIVE};
    CREATE TABLE b PARTITION OF plants ${OTHERS} PARTITION BY RANGE (id);
    CREATE UNLOGGED TABLE c PARTITION OF b DEFAULT`,
    'ALTER TABLE c SET LOGGED',
  ],
  'a view': [
    `CREATE UNLOGGED TABLE other ${COLUMNS}; CREATE VIEW plants AS TABLE other`,
    `DROP VIEW plants; ALTER TABLE other SET LOGGED; ALTER TABLE other RENAME TO plants`,
  ],
  'a foreign table': [
    `${SERVER}; CREATE FOREIGN TABLE plants (id bigint, name text, tag text, exact text) SERVER elsewhere`,
    `DROP SERVER elsewhere CASCADE; DROP FOREIGN DATA WRAPPER elsewhere; CREATE TABLE plants ${COLUMNS}`,
  ],
  'a table with an unlogged child': [
    `CREATE TABLE plants ${COLUMNS}; CREATE UNLOGGED TABLE child () INHERITS (plants)`,
    'DROP TABLE child',
  ],
  'a table with a child, in which an id may be used again': [
    `CREATE TABLE plants ${COLUMNS}; CREATE TABLE child () INHERITS (plants)`,
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

t.test('the table', { skip: missing() }, async (t) => {
  const cluster = await startCluster(t);

  for (const [kind, [create, mend]] of Object.entries(LOSING))
    t.test(`${kind} is refused`, async (t) => {
      const url = await cluster.createSchema();
      await query(url, create);
      const refused = { code: 'unavailable', message: /can lose plants$/ };
      await t.rejects(openPostgresStore({ url }), refused);
      await query(url, mend);
      const store = await openStore(t, { url });
      t.equal(await store.add(FERN), 'created');
      t.equal(await store.add(FERN), 'unchanged');
    });

  for (const [kind, create] of Object.entries(PERMANENT))
    t.test(`${kind} is accepted`, async (t) => {
      const url = await cluster.createSchema();
      await query(url, create);
      const store = await openStore(t, { url });
      t.equal(await store.add(FERN), 'created');
      t.equal(await store.add(FERN), 'unchanged');
    });

  const FAULTY: Record<string, [create: string, message: RegExp, mend: string]> = {
    ...Object.fromEntries(
      [
        ['id', 'integer', 'bigint'],
        ['id', 'double precision', 'bigint'],
        ['id', 'numeric', 'bigint'],
        ['name', 'name', 'text'],
        ['name', 'character(20)', 'text'],
        ['name', 'character varying(5)', 'text'],
        ['name', 'character varying', 'text'],
        ['tag', 'character varying(5)', 'text'],
        ['exact', 'json', 'text'],
      ].map(([column = '', type = '', right = '']) => [
        `a column ${column} of the type ${type}`,
        [
          `CREATE TABLE plants ${COLUMNS}; ALTER TABLE plants ALTER ${column} TYPE ${type} USING NULL`,
          RegExp(`: the column ${column} must be of the type ${right}$`),
          `ALTER TABLE plants ALTER ${column} TYPE ${right} USING NULL`,
        ],
      ]),
    ),
    'a column that was dropped': [
      `CREATE TABLE plants ${COLUMNS}; ALTER TABLE plants DROP COLUMN tag`,
      /"?tag"? does not exist/,
      'ALTER TABLE plants ADD COLUMN tag text',
    ],
  };
  for (const [what, [create, message, mend]] of Object.entries(FAULTY))
    t.test(`${what} is refused`, async (t) => {
      const url = await cluster.createSchema();
      await query(url, create);
      for (const acceptDataLoss of [false, true])
        await t.rejects(openPostgresStore({ url, acceptDataLoss }), {
          code: 'unavailable',
          message,
        });
      await query(url, mend);
      const store = await openStore(t, { url });
      t.equal(await store.add(FERN), 'created');
      t.equal(await store.add(FERN), 'unchanged');
    });

  const NOT_ASKED_FOR: Record<string, [create: string, message: RegExp]> = {
    'a deferrable key': [
      `CREATE TABLE plants ${COLUMNS.replace('KEY', 'KEY DEFERRABLE')}`,
      /deferrable unique constraints/,
    ],
    'a second key that is deferrable': [
      `CREATE TABLE plants ${COLUMNS}; ALTER TABLE plants ADD UNIQUE (id) DEFERRABLE`,
      /deferrable unique constraints/,
    ],
    'row-level security that hides plants': [
      `CREATE TABLE plants ${COLUMNS}; ALTER TABLE plants ENABLE ROW LEVEL SECURITY;
      ALTER TABLE plants FORCE ROW LEVEL SECURITY; ALTER ROLE CURRENT_USER NOSUPERUSER;
      CREATE POLICY p ON plants USING (name <> 'Ivy') WITH CHECK (true)`,
      /row-level security/,
    ],
  };
  for (const [what, [create, message]] of Object.entries(NOT_ASKED_FOR))
    t.test(`${what}: no plant is acknowledged, and the server says why`, async (t) => {
      const url = await cluster.createSchema();
      await query(url, create);
      const store = await openStore(t, { url });
      for (let times = 0; times < 2; times++)
        await t.rejects(store.add(IVY), { code: 'unavailable', message });
      t.match(store.reports[0], message);
    });

  t.test('a row that row-level security hides is not called unchanged', async (t) => {
    const url = await cluster.createSchema();
    const store = await openStore(t, { url });
    await store.add(IVY);
    await query(
      url,
      `ALTER TABLE plants ENABLE ROW LEVEL SECURITY; ALTER TABLE plants FORCE ROW LEVEL SECURITY;
      CREATE POLICY p ON plants USING (name <> 'Ivy'); ALTER ROLE CURRENT_USER NOSUPERUSER`,
    );
    const other = await openStore(t, { url });
    await t.rejects(other.add(IVY), { code: 'unavailable' });
  });

  t.test('a deferrable key of another column refuses only its plant', async (t) => {
    const url = await cluster.createSchema();
    await query(
      url,
      `CREATE TABLE plants ${COLUMNS}; ALTER TABLE plants ADD UNIQUE (name) DEFERRABLE INITIALLY DEFERRED`,
    );
    const store = await openStore(t, { url, connections: 1 });
    const plants = [FERN, IVY, { ...FERN, id: 9n }, { id: 10n, name: 'Moss' }];
    const outcomes = await Promise.allSettled(plants.map((plant) => store.add(plant)));
    const statuses = outcomes.map(({ status }) => status);
    t.strictSame(statuses, ['fulfilled', 'fulfilled', 'rejected', 'fulfilled']);
  });

  t.test('a column that gets another type while the store is open', async (t) => {
    const url = await cluster.createSchema();
    const store = await openStore(t, { url });
    await query(url, 'ALTER TABLE plants ALTER name TYPE name');
    const message = /: the column name must be of the type text/;
    await t.rejects(store.add({ id: 7n, name: 'x'.repeat(100) }), { code: 'unavailable', message });
    await query(url, 'TRUNCATE plants; ALTER TABLE plants ALTER name TYPE text');
    t.equal(await addUntilStored(store, FERN), 'created');
  });

  const MEANWHILE: Record<string, [create: string, change: string, mend: string]> = {
    'becomes unlogged': [
      `CREATE TABLE plants ${COLUMNS}`,
      'ALTER TABLE plants SET UNLOGGED',
      'ALTER TABLE plants SET LOGGED',
    ],
    'gets an unlogged partition': [
      `${PARTITIONED}; CREATE TABLE a PARTITION OF plants ${OTHERS}`,
      `CREATE UNLOGGED TABLE b PARTITION OF plants ${NEGATIVE}`,
      'ALTER TABLE b SET LOGGED',
    ],
    'gets an unlogged child': [
      `CREATE TABLE plants ${COLUMNS}`,
      'CREATE UNLOGGED TABLE child () INHERITS (plants)',
      'DROP TABLE child',
    ],
    'is replaced by a view': [
      `CREATE TABLE plants ${COLUMNS}`,
      'ALTER TABLE plants RENAME TO other; CREATE VIEW plants AS TABLE other',
      'DROP VIEW plants; ALTER TABLE other RENAME TO plants',
    ],
  };
  for (const [what, [create, change, mend]] of Object.entries(MEANWHILE))
    t.test(`nothing is acknowledged while the table ${what}`, async (t) => {
      const url = await cluster.createSchema();
      await query(url, create);
      const store = await openStore(t, { url, connections: 1 });
      const careless = await openStore(t, { url, acceptDataLoss: true });
      t.equal(await store.add(FERN), 'created');
      await query(url, change);
      await t.rejects(store.add(FERN), { code: 'unavailable', message: /can lose plants$/ });
      await t.rejects(store.add(IVY), { code: 'unavailable', message: /can lose plants$/ });
      t.equal(await addUntilStored(careless, FERN), 'unchanged', 'unless data loss is accepted');
      await query(url, mend);
      t.equal(await addUntilStored(store, FERN), 'unchanged');
      t.equal(await store.add({ id: 9n, name: 'Moss' }), 'created');
    });
});
