import { dirname, join, resolve } from 'node:path';

import { DEFAULT_LIMITS, MAX_LIMITS, resolveLimits } from '../http/memory.js';
import { parseDatabaseUrl } from '../postgres/url.js';
import {
  checkTokens,
  pairFault,
  readCertificate,
  readPassword,
  readPrivateKey,
  readTokens,
  readTokensIfPresent,
} from './credentials.js';
import { SettingsError } from './exit.js';

/** The version in package.json, which is not there when the program is bundled into one file. */
export const VERSION = '1.0.0';

/** The environment that settings are read from. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** Returns the value of a setting, or a promise of it. Throws what is wrong with it, without the name of the setting. */
type Parser<Value> = (value: string) => Value | Promise<Value>;

/** A setting with a default. */
function setting<Value>(fallback: string, about: string, parse: Parser<Value>) {
  return { fallback, about, parse };
}

/** A setting that is `undefined` if it is not given. */
function optional<Value>(about: string, parse: Parser<Value>) {
  return {
    fallback: undefined,
    about,
    parse: (value: string): Value | undefined | Promise<Value> => parse(value),
  };
}

/** Every setting: its default, its help, and its parser. Faults are reported in this order. */
export const SETTINGS = {
  PLANT_STORE_HOST: setting('127.0.0.1', 'address to listen on', host),
  PLANT_STORE_PORT: setting('8080', 'port to listen on; 0 takes a free one', integer(0, 65_535)),
  PLANT_STORE_FILE: setting('data/plants.jsonl', 'the log; created if missing', path),
  PLANT_STORE_DATABASE_URL: optional(
    'postgres://user[:password]@host[:port][,…]/database',
    databaseUrl,
  ),
  PLANT_STORE_DATABASE_PASSWORD_FILE: optional(
    'file with the password; read for each connection',
    passwordFile,
  ),
  PLANT_STORE_DATABASE_CONNECTIONS: setting('2', 'connections to the database', integer(1, 1_000)),
  PLANT_STORE_DATABASE_ACCEPT_DATA_LOSS: setting(
    'false',
    'true accepts fsync=off and synchronous_commit=off',
    flag,
  ),
  PLANT_STORE_TOKEN: optional('bearer tokens, separated by white space, instead of a file', tokens),
  PLANT_STORE_TOKEN_FILE: optional('file with one bearer token a line', tokenFile),
  PLANT_STORE_TLS_CERT: optional(
    'PEM file of a certificate; with its key, HTTPS is served',
    (value) => readCertificate(path(value)),
  ),
  PLANT_STORE_TLS_KEY: optional('PEM file of the private key', (value) =>
    readPrivateKey(path(value)),
  ),
  PLANT_STORE_MAX_BODY: setting(
    `${DEFAULT_LIMITS.maxBodyBytes}`,
    'the largest body, in bytes',
    integer(1, MAX_LIMITS.maxBodyBytes),
  ),
  PLANT_STORE_MAX_BUFFERED: setting(
    `${DEFAULT_LIMITS.maxBufferedBytes}`,
    'bytes for requests; at least eight bodies',
    integer(1, MAX_LIMITS.maxBufferedBytes),
  ),
  PLANT_STORE_MAX_CONNECTIONS: setting('10000', 'connections at a time', integer(1, 1_000_000)),
  PLANT_STORE_MONITOR_PORT: optional(
    'port of /livez, /readyz and /metrics; no TLS, no token',
    integer(0, 65_535),
  ),
  PLANT_STORE_MONITOR_HOST: setting('127.0.0.1', 'address of the monitor', host),
  // Longer than the 60 s for which nginx keeps idle connections.
  PLANT_STORE_KEEP_ALIVE_SECONDS: setting(
    '75',
    'how long an idle connection is kept at least, in seconds',
    integer(1, 86_400),
  ),
};

export type SettingName = keyof typeof SETTINGS;
export const SETTING_NAMES = Object.keys(SETTINGS) as SettingName[];

/** The values of all settings. */
export type Settings = {
  readonly [Name in SettingName]: Awaited<ReturnType<(typeof SETTINGS)[Name]['parse']>>;
};

const DATABASE_NAMES = [
  'PLANT_STORE_DATABASE_PASSWORD_FILE',
  'PLANT_STORE_DATABASE_CONNECTIONS',
  'PLANT_STORE_DATABASE_ACCEPT_DATA_LOSS',
] as const;
const STORE_NAMES = ['PLANT_STORE_FILE', 'PLANT_STORE_DATABASE_URL', ...DATABASE_NAMES] as const;

/** The settings that say where plants are kept. */
export type StoreSettings = Pick<Settings, (typeof STORE_NAMES)[number]>;

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
  const inheritedSocket = inherited(environment);
  faults.push(...contradictions(environment, inheritedSocket, values));
  const { PLANT_STORE_TOKEN: given, PLANT_STORE_TOKEN_FILE: named, PLANT_STORE_FILE: log } = values;
  let tokens = given ?? named?.tokens ?? [];
  let tokenFile = named?.path;
  if (log !== undefined && !hasTokens(environment) && !hasDatabase(environment)) {
    tokenFile = join(dirname(log), 'token');
    const found = readTokensIfPresent(tokenFile);
    tokens = await found.catch((error: unknown) => (faults.push(...faultsOf(error)), []));
  }
  if (tokenFile !== undefined && log === tokenFile)
    faults.push('PLANT_STORE_FILE: must not have the name of the token file');
  throwAny(faults);
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
      if (value.trim() === '') throw new Error('must not be empty; leave it out instead');
      values[name] = await parse(value);
    } catch (error) {
      faults.push(...faultsOf(error).map((fault) => `${name}: ${fault}${hint(name, value)}`));
    }
  }
  return { values: values as Partial<Settings>, faults };
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

/** The faults of settings that are valid by themselves. */
function contradictions(
  given: Environment,
  inheritedSocket: number | undefined,
  values: Partial<Settings>,
): string[] {
  const faults = databaseFaults(given);
  if (given.PLANT_STORE_TOKEN !== undefined && given.PLANT_STORE_TOKEN_FILE !== undefined)
    faults.push('PLANT_STORE_TOKEN and PLANT_STORE_TOKEN_FILE: must not be set together');
  if (hasDatabase(given) && !hasTokens(given))
    faults.push('PLANT_STORE_TOKEN or PLANT_STORE_TOKEN_FILE: must be set');

  const { PLANT_STORE_TLS_CERT: cert, PLANT_STORE_TLS_KEY: key } = values;
  if ((given.PLANT_STORE_TLS_CERT === undefined) !== (given.PLANT_STORE_TLS_KEY === undefined))
    faults.push('PLANT_STORE_TLS_CERT and PLANT_STORE_TLS_KEY: must be set together');
  const pair = cert && key && pairFault(cert, key);
  if (pair) faults.push(`PLANT_STORE_TLS_KEY: ${pair}`);

  try {
    const { PLANT_STORE_MAX_BODY: body, PLANT_STORE_MAX_BUFFERED: buffered } = values;
    if (body && buffered) resolveLimits({ maxBodyBytes: body, maxBufferedBytes: buffered });
  } catch (error) {
    const { message } = error as Error;
    faults.push(
      message
        .replace('maxBufferedBytes', 'PLANT_STORE_MAX_BUFFERED')
        .replace('maxBodyBytes', 'PLANT_STORE_MAX_BODY'),
    );
  }

  const { PLANT_STORE_PORT: port, PLANT_STORE_MONITOR_PORT: monitorPort } = values;
  if (inheritedSocket === undefined && monitorPort && monitorPort === port)
    faults.push('PLANT_STORE_MONITOR_PORT: must not be PLANT_STORE_PORT');
  if (inheritedSocket !== undefined) {
    if (given.LISTEN_FDS !== '1') faults.push('LISTEN_FDS: must be 1');
    for (const name of ['PLANT_STORE_HOST', 'PLANT_STORE_PORT'] as const)
      if (given[name] !== undefined)
        faults.push(`${name}: must not be set, because a socket is inherited (LISTEN_PID)`);
  }
  return faults;
}

function databaseFaults(given: Environment): string[] {
  if (!hasDatabase(given))
    return DATABASE_NAMES.filter((name) => given[name] !== undefined).map(
      (name) => `${name}: needs PLANT_STORE_DATABASE_URL`,
    );
  return given.PLANT_STORE_FILE === undefined
    ? []
    : ['PLANT_STORE_FILE and PLANT_STORE_DATABASE_URL: must not be set together'];
}

/** SD_LISTEN_FDS_START of systemd. */
const FIRST_INHERITED = 3;

/** The protocol of systemd: sd_listen_fds(3). The variables of another process have no effect. */
function inherited({ LISTEN_PID }: Environment): number | undefined {
  return LISTEN_PID === String(process.pid) ? FIRST_INHERITED : undefined;
}

/** The faults of variables that look like settings but are none. */
function unknownNames(environment: Environment): string[] {
  return Reflect.ownKeys(environment)
    .map(String)
    .filter((name) => name.startsWith('PLANT_STORE_') && !(name in SETTINGS))
    .map((name) => {
      const nearest = SETTING_NAMES.map((each) => [distance(name, each), each] as const)
        .sort(([a], [b]) => a - b)
        .slice(0, 3)
        .map(([, each]) => each);
      return `${name}: no such setting; the nearest ones are ${nearest.join(', ')}${hint(name, environment[name])}`;
    });
}

/** How many characters have to be inserted, removed or replaced to get from one word to another. */
function distance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, length) => length);
  for (let at = 0; at < from.length; at++) {
    const next = [at + 1];
    for (let index = 0; index < to.length; index++) {
      const replaced = Number(row[index]) + Number(from[at] !== to[index]);
      next.push(Math.min(replaced, Number(row[index + 1]) + 1, Number(next[index]) + 1));
    }
    row = next;
  }
  return Number(row.at(-1));
}

/** What Kubernetes sets for a Service named plant-store or plant-store-…. */
const SERVICE_LINK_NAME = /_SERVICE_(?:HOST|PORT)|_PORT_\d+_(?:TCP|UDP|SCTP)/;
const SERVICE_LINK_VALUE = /^(?:tcp|udp|sctp):\/\//;

/** What has probably happened to a variable, for the end of its fault. */
function hint(name: string, value = ''): string {
  if (SERVICE_LINK_NAME.test(name) || SERVICE_LINK_VALUE.test(value))
    return ' (if Kubernetes has set it for a Service of this name: enableServiceLinks: false)';
  if (/^["']|[\s"']$/.test(value) && value.trim() !== '')
    return ' (its value begins or ends with white space or a quote, which an env file keeps)';
  return '';
}

/** Settings as `--help` shows them. */
export function settingsHelp(): string {
  const width = Math.max(...SETTING_NAMES.map((name) => name.length));
  return SETTING_NAMES.map((name) => {
    const { fallback, about } = SETTINGS[name];
    return `  ${name.padEnd(width)}  ${about}${fallback === undefined ? '' : ` (${fallback})`}`;
  }).join('\n');
}

function host(value: string): string {
  if (/[\s"']/.test(value)) throw new Error('must be an address or the name of a host');
  return value;
}

/** An env file keeps the quotes and the CR that a shell would have removed, and does not expand `~`. */
function path(value: string): string {
  if (/^[\s"'~]|^file:|[\s"']$/i.test(value))
    throw new Error(
      `must not begin or end with white space or a quote, or begin with ~ or file:, as ${JSON.stringify(value)} does`,
    );
  return resolve(value);
}

function integer(min: number, max: number): Parser<number> {
  return (value) => {
    const number = /^\d+$/.test(value) ? Number(value) : NaN;
    if (number >= min && number <= max) return number;
    throw new RangeError(`must be an integer between ${min} and ${max}`);
  };
}

function flag(value: string): boolean {
  if (value !== 'true' && value !== 'false') throw new Error('must be true or false');
  return value === 'true';
}

function databaseUrl(value: string): string {
  parseDatabaseUrl(value);
  return value;
}

async function passwordFile(value: string): Promise<string> {
  const file = path(value);
  await readPassword(file);
  return file;
}

async function tokenFile(value: string): Promise<{ path: string; tokens: readonly string[] }> {
  const file = path(value);
  return { path: file, tokens: await readTokens(file) };
}

function tokens(value: string): readonly string[] {
  return checkTokens(value.split(/\s+/).filter(Boolean), 'number');
}
