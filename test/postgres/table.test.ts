import t from 'tap';

import { openPostgresStore } from '../../dist/postgres/index.js';
import { FERN, IVY } from '../helpers/plants.js';
import { missingForServers, query, startCluster } from './cluster.js';
import { addUntilStored, openStore } from './support.js';

const TABLE =
  'CREATE TABLE plants (id bigint PRIMARY KEY, name text NOT NULL, tag text, exact text)';
/** Changes with which plants could be lost, and how each is undone. */
const LOSING: Record<string, [change: string, fix: string]> = {
  'an unlogged table': ['ALTER TABLE plants SET UNLOGGED', 'ALTER TABLE plants SET LOGGED'],
  'a server without fsync': ['ALTER SYSTEM SET fsync = off', 'ALTER SYSTEM RESET fsync'],
};

/** Columns that would change plants, or refuse them. */
const CHANGING: readonly [column: string, type: string, right: string][] = [
  ['id', 'double precision', 'bigint'],
  ['name', 'character(20)', 'text'],
  ['tag', 'character varying(5)', 'text'],
  ['exact', 'json', 'text'],
];

/**
 * Changes that are not checked beforehand, because the server then refuses each plant with an
 * error.
 */
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

t.test('the table and its server', { skip: missingForServers() }, async (t) => {
  const cluster = await startCluster(t);

  async function created(sql: string): Promise<string> {
    const url = await cluster.createSchema();
    await query(url, sql);
    return url;
  }

  t.test('while plants can be lost, none is acknowledged, and no store opens', async (t) => {
    const refused = { code: 'unavailable', message: /can lose plants$/ };
    for (const [what, [change, fix]] of Object.entries(LOSING)) {
      const url = await created(TABLE);
      const store = await openStore(t, { url, connections: 1 });
      t.equal(await store.add(FERN), 'created', what);
      await query(url, change);
      await cluster.reload();
      await t.rejects(store.check(), refused, what);
      for (const plant of [FERN, IVY]) await t.rejects(store.add(plant), refused, what);
      await t.rejects(openPostgresStore({ url }), refused, what);
      await query(url, fix);
      await cluster.reload();
      t.equal(await addUntilStored(store, FERN), 'unchanged', what);
    }
  });

  t.test('an administrator corrects and deletes plants while a store is open', async (t) => {
    const url = await created(TABLE);
    const store = await openStore(t, { url });
    t.equal(await store.add({ ...FERN, name: '\0' }), 'created');
    await query(url, `UPDATE plants SET name = '${FERN.name}', exact = NULL WHERE id = ${FERN.id}`);
    t.strictSame(await store.get(FERN.id), FERN);
    t.equal(await store.add(FERN), 'unchanged');
    await query(url, `DELETE FROM plants WHERE id = ${FERN.id}`);
    t.equal(await store.get(FERN.id), undefined);
    t.equal(await store.add(FERN), 'created');
  });

  t.test('a column that would change plants is refused', async (t) => {
    for (const [column, type, right] of CHANGING) {
      const url = await created(
        `${TABLE}; ALTER TABLE plants ALTER ${column} TYPE ${type} USING NULL`,
      );
      const message = RegExp(`: the column ${column} must be of the type ${right}$`);
      await t.rejects(openPostgresStore({ url }), { message }, type);
      await query(url, `ALTER TABLE plants ALTER ${column} TYPE ${right} USING NULL`);
      const store = await openStore(t, { url });
      t.equal(await store.add(FERN), 'created', type);
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
