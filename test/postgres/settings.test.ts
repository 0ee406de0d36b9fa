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
  // With this setting, the error of a missing table ends the connection.
  [`exit_on_error = 'on'`]: /Connection terminated unexpectedly$/,
};

/** Settings other than on and off, and those with a list of values. */
const OTHERS = [
  ...['client_encoding = LATIN1', 'client_encoding = SQL_ASCII', 'DateStyle = German'],
  ...['IntervalStyle = iso_8601', 'TimeZone = 14', 'extra_float_digits = -15', "lc_numeric = 'C'"],
  ...["lc_messages = 'C'", 'xmloption = document', 'bytea_output = escape', 'work_mem = 64'],
  ...['search_path = "$user", pg_catalog', 'idle_in_transaction_session_timeout = 1'],
];

/**
 * Checks that storing, comparing and reading plants have the same results as without the settings
 * of the role.
 */
async function expectSameResults(t: Test, settings: string, url: string): Promise<void> {
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
 * The number of roles among which the settings are distributed. Neighbours, which may be values of
 * the same setting, go to different roles.
 */
const ROLES = 16;

t.test('the settings of a role change no result', { skip: missingForServers() }, async (t) => {
  // With some settings, a statement seems so costly that the server would compile it, which takes
  // seconds.
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
    await expectSameResults(t, settings.join(), await cluster.createSchema(...settings));
  }
  for (const [setting, message] of Object.entries(REFUSED)) {
    t.ok(all.includes(setting), `${setting} is a setting`);
    await t.rejects(openStore(t, { url: await cluster.createSchema(setting) }), { message });
  }
});
