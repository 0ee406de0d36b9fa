import t, { type Test } from 'tap';

import type { NewPlant } from '../../dist/index.js';
import { codeOf } from '../../dist/system-error.js';
import { missing, startCluster } from './cluster.js';
import { IVY, openStore } from './support.js';

const PLANTS: NewPlant[] = [
  { id: -(2n ** 63n), name: '', tag: '' },
  IVY,
  { id: 9n, name: 'null', tag: 'NULL' },
  { id: 10n, name: '\\"{},\n\'$1\u0001', tag: 'a\\' },
  { id: 11n, name: 'é😀\ufffd', tag: '\0' },
  { id: 2n ** 53n + 1n, name: '\ud800' },
  { id: 2n ** 63n - 1n, name: 'x'.repeat(10_000), tag: 'ß' },
];

/** Why a store does not open for a role with this setting. */
const REFUSED: Record<string, RegExp> = {
  [`default_transaction_read_only = 'on'`]: /read-only/,
  [`synchronous_commit = 'off'`]: /synchronous_commit=off can lose plants/,
};

/** Settings other than on and off, and those with a list of values. */
const OTHERS = [
  ...['client_encoding = LATIN1', 'client_encoding = SQL_ASCII', 'DateStyle = German'],
  ...['IntervalStyle = iso_8601', 'TimeZone = 14', 'extra_float_digits = -15', "lc_numeric = 'C'"],
  ...["lc_messages = 'C'", 'xmloption = document', 'bytea_output = escape', 'work_mem = 64'],
  ...['search_path = "$user", pg_catalog', 'idle_in_transaction_session_timeout = 1'],
  ...['commit_delay = 100', 'deadlock_timeout = 1', 'from_collapse_limit = 1'],
  ...['join_collapse_limit = 1', 'cursor_tuple_fraction = 0', 'default_statistics_target = 1'],
  ...['gin_fuzzy_search_limit = 1', 'temp_buffers = 100', 'max_parallel_workers_per_gather = 8'],
  ...['parallel_setup_cost = 0', 'min_parallel_table_scan_size = 0', 'random_page_cost = 1e10'],
];

/** Stores, compares and reads plants as a role, and checks that all of it means what it should. */
async function meansTheSame(t: Test, setting: string, url: string): Promise<void> {
  const store = await openStore(t, { url, connections: 1 });
  const outcomesOf = (plants: readonly NewPlant[]): Promise<unknown[]> =>
    Promise.all(plants.map((plant) => store.add(plant).catch(codeOf)));
  const others = PLANTS.map(({ id, name }) => ({ id, name, tag: 'another' }));
  for (const [plants, outcome] of [
    [PLANTS, 'created'],
    [PLANTS, 'unchanged'],
    [others, 'conflict'],
  ] as const)
    t.strictSame(new Set(await outcomesOf(plants)), new Set([outcome]), `with ${setting}`);
  const read: NewPlant[] = [];
  for await (const plant of store.plants()) read.push(plant);
  t.strictSame(read, PLANTS, `with ${setting}`);
  await store.close();
}

t.test('settings of the role', { skip: missing(), timeout: 1_800_000 }, async (t) => {
  const cluster = await startCluster(t);
  // Every value of each setting with a list of values that a role may have.
  const rows = await cluster.sql(`SELECT name || ' = ' || quote_literal(value) AS setting
    FROM pg_settings, unnest(coalesce(enumvals, '{on,off}')) AS value
    WHERE context IN ('user', 'superuser') AND vartype IN ('bool', 'enum')
      AND value <> setting AND name NOT LIKE 'transaction\\_%' ORDER BY 1`);
  const all = [...rows.map(({ setting }) => String(setting)), ...OTHERS];
  t.ok(all.length > 150, `${all.length} settings`);
  const left = all.filter((setting) => !REFUSED[setting]);
  await Promise.all(
    Array.from({ length: 8 }, async () => {
      for (let setting = left.pop(); setting !== undefined; setting = left.pop())
        await meansTheSame(t, setting, await cluster.createSchema(setting)).catch(
          (error: unknown) => t.fail(`${setting}: ${String(error)}`),
        );
    }),
  );
  for (const [setting, message] of Object.entries(REFUSED)) {
    t.ok(all.includes(setting), `${setting} is a setting`);
    await t.rejects(openStore(t, { url: await cluster.createSchema(setting) }), { message });
  }
});
