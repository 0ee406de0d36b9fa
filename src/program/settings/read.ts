import { collectProblems, SettingsError } from './error.js';
import {
  EXCLUSIVE,
  NEEDS,
  SETTING_NAMES,
  SETTINGS,
  STORE_NAMES,
  type SettingName,
  type Settings,
  type StoreSettings,
} from './table.js';

/** The environment that settings are read from. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** The values of the settings that could be parsed, and all problems. */
export interface SettingsRead {
  readonly values: Partial<Settings>;
  readonly problems: string[];
}

/**
 * Reads the settings that say where plants are kept.
 *
 * @throws SettingsError with all problems.
 */
export async function readStoreSettings(environment: Environment): Promise<StoreSettings> {
  const { values, problems } = await readSettings(environment, STORE_NAMES);
  if (problems.length > 0) throw new SettingsError(problems);
  return values as StoreSettings;
}

/**
 * Reads the absolute path of the log, for a command on it that names none.
 *
 * @throws SettingsError with all problems, or if plants are kept in a database.
 */
export async function readLogPath(environment: Environment): Promise<string> {
  const { values, problems } = await readSettings(environment, ['PLANT_STORE_FILE']);
  if (environment.PLANT_STORE_DATABASE_URL !== undefined)
    problems.push('PLANT_STORE_DATABASE_URL: is set, so the command has to name its log');
  if (problems.length > 0) throw new SettingsError(problems);
  return (values as Settings).PLANT_STORE_FILE;
}

/** Reads some settings in the order of the table, and checks that each of them has an effect. */
export async function readSettings(
  environment: Environment,
  names: readonly SettingName[],
): Promise<SettingsRead> {
  const problems = unknownNames(environment);
  const values: Partial<Record<SettingName, unknown>> = {};
  for (const name of names) {
    const { fallback, parse } = SETTINGS[name];
    const value = environment[name] ?? fallback;
    if (value === undefined) continue;
    values[name] = await collectProblems(problems, name, () => {
      checkEnds(name, value);
      return parse(value, environment[name] !== undefined);
    });
  }
  const given = names.filter((name) => environment[name] !== undefined);
  for (const name of given) {
    const needed = NEEDS[name];
    if (needed && !given.includes(needed)) problems.push(`${name}: needs ${needed}`);
  }
  for (const [one, other] of EXCLUSIVE)
    if (given.includes(one) && given.includes(other))
      problems.push(`${one} and ${other}: must not be set together`);
  return { values: values as Partial<Settings>, problems };
}

/**
 * An env file keeps quotes, which a shell would have removed, and the CR of a CRLF line. Tokens may have white space
 * around.
 */
function checkEnds(name: SettingName, value: string): void {
  if (value.trim() === '') throw new Error('must not be empty; leave it out instead');
  const checked = name === 'PLANT_STORE_TOKEN' ? value.trim() : value;
  const [stray] = /^[\s"']|[\s"']$/.exec(checked) ?? [];
  // Without the rest, which may be a secret.
  if (stray !== undefined)
    throw new Error(`must not begin or end with ${JSON.stringify(stray)}, which an env file keeps`);
}

/** The problems of variables that look like settings but are none. */
function unknownNames(environment: Environment): string[] {
  // `Object.keys` would also read the values of variables that are not ours.
  return Reflect.ownKeys(environment)
    .map(String)
    .filter((name) => name.startsWith('PLANT_STORE_') && !(name in SETTINGS))
    .map((name) => {
      const problem = `${name}: no such setting; the nearest ones are ${nearestSettings(name)}`;
      // Kubernetes sets it, among others, for a Service named plant-store.
      return name.endsWith('_SERVICE_HOST')
        ? `${problem}; in Kubernetes, set enableServiceLinks: false`
        : problem;
    });
}

/** Names the three settings whose names are most like a name that is none of them. */
export function nearestSettings(name: string): string {
  const byLikeness = SETTING_NAMES.toSorted((a, b) => likeness(name, b) - likeness(name, a));
  return byLikeness.slice(0, 3).join(', ');
}

/** Grows with the number of characters that two different words share at their beginnings and at their ends. */
function likeness(one: string, other: string): number {
  let [start, end] = [0, -1];
  while (one[start] === other[start]) start++;
  while (one.at(end) === other.at(end)) end--;
  return start - end;
}
