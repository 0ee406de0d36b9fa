import { dirname, join } from 'node:path';

import { MIN_BUFFERED_BODIES } from '../http/memory.js';
import { pairFault, readTokensIfPresent } from './credentials.js';
import { SettingsError } from './exit.js';
import {
  DATABASE_NAMES,
  SETTING_NAMES,
  SETTINGS,
  STORE_NAMES,
  type SettingName,
  type Settings,
  type StoreSettings,
} from './settings.js';

/** The environment that settings are read from. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** All settings, and what follows from them. */
export interface ServerSettings extends Settings {
  /** A listening socket that the process has inherited, which is used instead of host and port. */
  readonly inheritedSocket: number | undefined;
  /** The bearer tokens; none if the token file has to be created. */
  readonly tokens: readonly string[];
  /** The path of the file that holds the tokens, unless they are set directly. */
  readonly tokenFile: string | undefined;
}

/**
 * Reads the settings of the server, and the files that they name.
 *
 * @throws SettingsError with all faults.
 */
export async function readServerSettings(environment: Environment): Promise<ServerSettings> {
  const { values, faults } = await read(environment, SETTING_NAMES);
  // The protocol of systemd, sd_listen_fds(3). The variables of another process have no effect.
  const isInherited = environment.LISTEN_PID === String(process.pid);
  faults.push(
    ...databaseFaults(environment),
    ...tokenFaults(environment),
    ...tlsFaults(environment, values),
    ...limitFaults(values),
    ...(isInherited ? inheritedFaults(environment) : portFaults(values)),
  );
  const { PLANT_STORE_TOKEN: given, PLANT_STORE_TOKEN_FILE: named, PLANT_STORE_FILE: log } = values;
  let tokens = given ?? named?.tokens ?? [];
  let tokenFile = named?.path;
  if (log !== undefined && !hasTokens(environment) && !hasDatabase(environment)) {
    tokenFile = join(dirname(log), 'token');
    const found = readTokensIfPresent(tokenFile);
    tokens = await found.catch((error: unknown) => {
      const ofFile = (fault: string) => `PLANT_STORE_FILE: the token file beside it, ${fault}`;
      faults.push(...faultsOf(error).map(ofFile));
      return [];
    });
  }
  if (tokenFile !== undefined && log === tokenFile)
    faults.push('PLANT_STORE_FILE: must not have the name of the token file');
  throwAny(faults);
  const inheritedSocket = isInherited ? FIRST_INHERITED : undefined;
  return { ...(values as Settings), inheritedSocket, tokens, tokenFile };
}

/**
 * Reads the settings that say where plants are kept.
 *
 * @throws SettingsError with all faults.
 */
export async function readStoreSettings(environment: Environment): Promise<StoreSettings> {
  const { values, faults } = await read(environment, STORE_NAMES);
  throwAny([...faults, ...databaseFaults(environment)]);
  return values as StoreSettings;
}

/**
 * Reads the absolute path of the log, for a command on it that names none.
 *
 * @throws SettingsError with all faults, or if plants are kept in a database.
 */
export async function readLogPath(environment: Environment): Promise<string> {
  const { values, faults } = await read(environment, ['PLANT_STORE_FILE']);
  if (hasDatabase(environment))
    faults.push('PLANT_STORE_DATABASE_URL: is set, so the command has to name its log');
  throwAny(faults);
  return (values as Settings).PLANT_STORE_FILE;
}

/** Reads some settings in the order of the table. One with a fault has no value. */
async function read(
  environment: Environment,
  names: readonly SettingName[],
): Promise<{ values: Partial<Settings>; faults: string[] }> {
  const faults = unknownNames(environment);
  const values: Partial<Record<SettingName, unknown>> = {};
  for (const name of names) {
    const { fallback, parse } = SETTINGS[name];
    const value = environment[name] ?? fallback;
    if (value === undefined) continue;
    try {
      checkEnds(name, value);
      values[name] = await parse(value);
    } catch (error) {
      faults.push(...faultsOf(error).map((fault) => `${name}: ${fault}${hint(name, value)}`));
    }
  }
  return { values: values as Partial<Settings>, faults };
}

/** An env file keeps the quotes and the CR that a shell would have removed. Tokens may have white space around. */
function checkEnds(name: SettingName, value: string): void {
  if (value.trim() === '') throw new Error('must not be empty; leave it out instead');
  const checked = name === 'PLANT_STORE_TOKEN' ? value.trim() : value;
  const [stray] = /^[\s"']|[\s"']$/.exec(checked) ?? [];
  // Without the rest, which may be a secret.
  if (stray !== undefined)
    throw new Error(`must not begin or end with ${JSON.stringify(stray)}, which an env file keeps`);
}

function faultsOf(error: unknown): readonly string[] {
  return error instanceof SettingsError ? error.faults : [(error as Error).message];
}

function throwAny(faults: readonly string[]): void {
  if (faults.length > 0) throw new SettingsError(faults);
}

const hasDatabase = (given: Environment): boolean => given.PLANT_STORE_DATABASE_URL !== undefined;
const hasTokens = ({ PLANT_STORE_TOKEN, PLANT_STORE_TOKEN_FILE }: Environment): boolean =>
  (PLANT_STORE_TOKEN ?? PLANT_STORE_TOKEN_FILE) !== undefined;

function databaseFaults(given: Environment): string[] {
  if (!hasDatabase(given))
    return DATABASE_NAMES.filter((name) => given[name] !== undefined).map(
      (name) => `${name}: needs PLANT_STORE_DATABASE_URL`,
    );
  return exclusionFaults(given, 'PLANT_STORE_FILE', 'PLANT_STORE_DATABASE_URL');
}

function tokenFaults(given: Environment): string[] {
  if (hasDatabase(given) && !hasTokens(given))
    return ['PLANT_STORE_TOKEN or PLANT_STORE_TOKEN_FILE: must be set'];
  return exclusionFaults(given, 'PLANT_STORE_TOKEN', 'PLANT_STORE_TOKEN_FILE');
}

/** The fault of two settings that exclude each other. */
function exclusionFaults(given: Environment, one: SettingName, other: SettingName): string[] {
  if (given[one] === undefined || given[other] === undefined) return [];
  return [`${one} and ${other}: must not be set together`];
}

function tlsFaults(given: Environment, values: Partial<Settings>): string[] {
  if ((given.PLANT_STORE_TLS_CERT === undefined) !== (given.PLANT_STORE_TLS_KEY === undefined))
    return ['PLANT_STORE_TLS_CERT and PLANT_STORE_TLS_KEY: must be set together'];
  const { PLANT_STORE_TLS_CERT: cert, PLANT_STORE_TLS_KEY: key } = values;
  const fault = cert && key && pairFault(cert, key);
  return fault ? [`PLANT_STORE_TLS_KEY: ${fault}`] : [];
}

function limitFaults(values: Partial<Settings>): string[] {
  const { PLANT_STORE_MAX_BODY: body, PLANT_STORE_MAX_BUFFERED: buffered } = values;
  if (!body || !buffered || buffered >= MIN_BUFFERED_BODIES * body) return [];
  return ['PLANT_STORE_MAX_BUFFERED: must be at least eight times PLANT_STORE_MAX_BODY'];
}

function portFaults(values: Partial<Settings>): string[] {
  const { PLANT_STORE_PORT: port, PLANT_STORE_MONITOR_PORT: monitorPort } = values;
  // Two free ports differ.
  return monitorPort && monitorPort === port
    ? ['PLANT_STORE_MONITOR_PORT: must not be PLANT_STORE_PORT']
    : [];
}

/** SD_LISTEN_FDS_START of systemd. */
const FIRST_INHERITED = 3;

function inheritedFaults(given: Environment): string[] {
  const faults = (['PLANT_STORE_HOST', 'PLANT_STORE_PORT'] as const)
    .filter((name) => given[name] !== undefined)
    .map((name) => `${name}: must not be set, because a socket is inherited (LISTEN_PID)`);
  return given.LISTEN_FDS === '1' ? faults : ['LISTEN_FDS: must be 1', ...faults];
}

/** The faults of variables that look like settings but are none. */
function unknownNames(environment: Environment): string[] {
  return Reflect.ownKeys(environment)
    .map(String)
    .filter((name) => name.startsWith('PLANT_STORE_') && !(name in SETTINGS))
    .map((name) => {
      const byLikeness = SETTING_NAMES.toSorted((a, b) => likeness(name, b) - likeness(name, a));
      const nearest = byLikeness.slice(0, 3).join(', ');
      return `${name}: no such setting; the nearest ones are ${nearest}${hint(name, environment[name])}`;
    });
}

/** How many characters two different words share at their beginnings and at their ends. */
function likeness(one: string, other: string): number {
  let [start, end] = [0, -1];
  while (one[start] === other[start]) start++;
  while (one.at(end) === other.at(end)) end--;
  return start - end;
}

/** What Kubernetes sets for a Service named plant-store or plant-store-…. */
const SERVICE_LINK_NAME = /_SERVICE_(?:HOST|PORT)|_PORT_\d+_(?:TCP|UDP|SCTP)/;
const SERVICE_LINK_VALUE = /^(?:tcp|udp|sctp):\/\//;

/** What has probably set a variable, for the end of its fault. */
function hint(name: string, value = ''): string {
  return SERVICE_LINK_NAME.test(name) || SERVICE_LINK_VALUE.test(value)
    ? ' (if Kubernetes has set it for a Service of this name: enableServiceLinks: false)'
    : '';
}
