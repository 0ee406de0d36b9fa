import t, { type Test } from 'tap';

import type { NewPlant } from '../../dist/index.js';
import { codeOf } from '../../dist/system-error.js';
import { IVY } from '../helpers/plants.js';
import { collect } from '../helpers/stores.js';
import { missingForServers, startCluster } from './cluster.js';
import { openStore } from './support.js';

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
  // The table is missing, and that is an error.
  [`exit_on_error = 'on'`]: /Connection terminated unexpectedly$/,
};

/** Settings other than on and off, and those with a list of values. */
const OTHERS = [
  ...['client_encoding = LATIN1', 'client_encoding = SQL_ASCII', 'DateStyle = German'],
  ...['IntervalStyle = iso_8601', 'TimeZone = 14', 'extra_float_digits = -15', "lc_numeric = 'C'"],
  ...["lc_messages = 'C'", 'xmloption = document', 'bytea_output = escape', 'work_mem = 64'],
  ...['search_path = "$user", pg_catalog', 'idle_in_transaction_session_timeout = 1'],
];

/** Stores, compares and reads plants as a role, and checks that all of it means what it should. */
async function meansTheSame(t: Test, settings: string, url: string): Promise<void> {
  const store = await openStore(t, { url, connections: 1 });
  const others = PLANTS.map(({ id, name }) => ({ id, name, tag: 'another' }));
  for (const [plants, expected] of [
    [PLANTS, 'created'],
    [PLANTS, 'unchanged'],
    [others, 'conflict'],
  ] as const) {
    const outcomes = await Promise.all(plants.map((plant) => store.add(plant).catch(codeOf)));
    t.strictSame(new Set(outcomes), new Set([expected]), `with ${settings}`);
  }
  t.strictSame(await collect(store.plants()), PLANTS, `with ${settings}`);
  await store.close();
}

/**
 * How many roles share the settings. Those with the same name, which are neighbours, are not of the
 * same role.
 */
const ROLES = 16;

t.test('settings of the role', { skip: missingForServers() }, async (t) => {
  // With some of them, a statement seems so costly that it would be compiled, which takes seconds.
  const cluster = await startCluster(t);
  await cluster.configure('SET jit_above_cost = -1');
  // Every value of each setting with a list of values that a role may have.
  const rows = await cluster.sql(`SELECT name || ' = ' || quote_literal(value) AS setting
    FROM pg_settings, unnest(coalesce(enumvals, '{on,off}')) AS value
    WHERE context IN ('user', 'superuser') AND vartype IN ('bool', 'enum')
      AND value <> setting AND name NOT LIKE 'transaction\\_%' ORDER BY 1`);
  const all = [...rows.map(({ setting }) => String(setting)), ...OTHERS];
  t.ok(all.length > 130, `${all.length} settings`);
  const left = all.filter((setting) => !REFUSED[setting]);
  for (let role = 0; role < ROLES; role++) {
    const settings = left.filter((_, n) => n % ROLES === role);
    await meansTheSame(t, settings.join(), await cluster.createSchema(...settings));
  }
  for (const [setting, message] of Object.entries(REFUSED)) {
    t.ok(all.includes(setting), `${setting} is a setting`);
    await t.rejects(openStore(t, { url: await cluster.createSchema(setting) }), { message });
  }
});
