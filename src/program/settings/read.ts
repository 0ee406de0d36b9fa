import { collectProblems, SettingsError } from './error.js';
import {
  EXCLUSIVE,
  NEEDS,
  SETTING_NAMES,
  SETTINGS,
  STORE_SETTING_NAMES,
  type SettingName,
  type Settings,
  type StoreSettings,
} from './table.js';

/** The environment that settings are read from. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** What {@link readSettings} has found. */
export interface SettingsRead {
  /** The settings that the environment has, valid or not. */
  readonly given: ReadonlySet<SettingName>;
  /** The value or the default of each setting that is valid. */
  readonly values: Partial<Settings>;
  readonly problems: string[];
}

/**
 * Reads the settings that say where plants are kept.
 *
 * @throws SettingsError with all problems.
 */
export async function readStoreSettings(environment: Environment): Promise<StoreSettings> {
  const { values, problems } = await readSettings(environment, STORE_SETTING_NAMES);
  if (problems.length > 0) throw new SettingsError(problems);
  return values as StoreSettings;
}

/**
 * Reads the absolute path of the log, for a command that is run on a log but names none.
 *
 * @throws SettingsError with all problems, or if plants are kept in a database.
 */
export async function readLogPath(environment: Environment): Promise<string> {
  const { values, problems } = await readSettings(environment, ['PLANT_STORE_FILE']);
  // The URL is not read: the command does not use it, so it need not be valid.
  if (environment.PLANT_STORE_DATABASE_URL !== undefined)
    problems.push('PLANT_STORE_DATABASE_URL: is set, so the command has to name its log');
  if (problems.length > 0) throw new SettingsError(problems);
  return (values as Settings).PLANT_STORE_FILE;
}

/**
 * Reads the settings with these names, and collects their problems: values that are not valid, a
 * setting without another that it needs, and settings that exclude each other.
 */
export async function readSettings(
  environment: Environment,
  names: readonly SettingName[],
): Promise<SettingsRead> {
  const problems = problemsOfUnknownNames(environment);
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
  const given = new Set(names.filter((name) => environment[name] !== undefined));
  for (const name of given) {
    const needed = NEEDS[name];
    if (needed && !given.has(needed)) problems.push(`${name}: needs ${needed}`);
  }
  for (const [one, other] of EXCLUSIVE)
    if (given.has(one) && given.has(other))
      problems.push(`${one} and ${other}: must not be set together`);
  return { given, values: values as Partial<Settings>, problems };
}

/**
 * Refuses what an env file keeps and a shell would remove: quotes around a value, white space, and
 * the CR of a CRLF line. In PLANT_STORE_TOKEN, white space surrounds tokens.
 *
 * @throws Error whose message is the problem.
 */
function checkEnds(name: SettingName, value: string): void {
  if (value.trim() === '') throw new Error('must not be empty; leave it out instead');
  const checked = name === 'PLANT_STORE_TOKEN' ? value.trim() : value;
  const [stray] = /^[\s"']|[\s"']$/.exec(checked) ?? [];
  // The message has only this character: the rest of the value may be a secret.
  if (stray !== undefined)
    throw new Error(`must not begin or end with ${JSON.stringify(stray)}, which an env file keeps`);
}

/** The problems of variables whose names begin with PLANT_STORE_ but are not those of settings. */
function problemsOfUnknownNames(environment: Environment): string[] {
  // Not `Object.keys`, which inspects every variable: the program promises to read only its own
  // (SECURITY.md).
  return Reflect.ownKeys(environment)
    .map(String)
    .filter((name) => name.startsWith('PLANT_STORE_') && !(name in SETTINGS))
    .map((name) => {
      const problem = `${name}: no such setting; the nearest ones are ${nearestSettings(name)}`;
      // For a Service named plant-store, Kubernetes sets PLANT_STORE_SERVICE_HOST, among others.
      return name.endsWith('_SERVICE_HOST')
        ? `${problem}; in Kubernetes, set enableServiceLinks: false`
        : problem;
    });
}

/** The names of the three settings that are most like an unknown name, for a message about it. */
export function nearestSettings(name: string): string {
  const byLikeness = SETTING_NAMES.toSorted((a, b) => likeness(name, b) - likeness(name, a));
  return byLikeness.slice(0, 3).join(', ');
}

/** How many characters two different words share at their beginnings and at their ends. */
function likeness(one: string, other: string): number {
  let [start, end] = [0, -1];
  while (one[start] === other[start]) start++;
  while (one.at(end) === other.at(end)) end--;
  return start + (-1 - end);
}
