import { stat } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';

import { DEFAULT_LIMITS, MAX_LIMITS } from '../../http/limits.js';
import { parseDatabaseUrl } from '../../postgres/url.js';
import { nameProblems } from './error.js';
import { checkTokens, readPassword, readTokens } from './files.js';

/**
 * Parses the text of a setting; `isGiven` is false for the text of the default. Returns the value,
 * or a promise of it.
 *
 * @throws Error whose message is the problem; the caller adds the name of the setting.
 */
type Parser<Value> = (value: string, isGiven: boolean) => Value | Promise<Value>;

/** A setting with a default. */
function setting<Value>(fallback: string, about: string, parse: Parser<Value>) {
  return { fallback, about, parse };
}

/** A setting that is `undefined` if it is not given, which the type of its parser includes. */
function optional<Value>(about: string, parse: Parser<Value | undefined>) {
  return { fallback: undefined, about, parse };
}

/** The settings that say where plants are kept. Only the server reads the others. */
const STORE_SETTINGS = {
  PLANT_STORE_FILE: setting('data/plants.jsonl', 'the log; created if missing', logFile),
  PLANT_STORE_DATABASE_URL: optional(
    'postgres://user[:password]@host[:port][,…]/database',
    databaseUrl,
  ),
  PLANT_STORE_DATABASE_PASSWORD_FILE: optional(
    'file with the password; read for each connection',
    passwordFile,
  ),
  PLANT_STORE_DATABASE_CONNECTIONS: setting('2', 'connections to the database', integer(1, 1_000)),
};

/** Every setting: its default, its help, and its parser, in the order of `--help`. */
export const SETTINGS = {
  PLANT_STORE_HOST: setting('127.0.0.1', 'address to listen on', String),
  PLANT_STORE_PORT: setting('8080', 'port to listen on; 0 takes a free one', integer(0, 65_535)),
  ...STORE_SETTINGS,
  PLANT_STORE_TOKEN: optional('bearer tokens themselves, separated by white space', tokens),
  PLANT_STORE_TOKEN_FILE: optional('file with one bearer token a line', tokenFile),
  PLANT_STORE_TLS_CERT: optional('PEM file of a certificate; with its key, HTTPS is served', path),
  PLANT_STORE_TLS_KEY: optional('PEM file of the private key', path),
  PLANT_STORE_MAX_BODY: setting(
    `${DEFAULT_LIMITS.maxBodyBytes}`,
    'the largest body, in bytes',
    integer(1, MAX_LIMITS.maxBodyBytes),
  ),
  PLANT_STORE_MAX_BUFFERED: setting(
    `${DEFAULT_LIMITS.maxBufferedBytes}`,
    'memory for requests in bytes; at least eight bodies',
    integer(1, MAX_LIMITS.maxBufferedBytes),
  ),
  PLANT_STORE_MAX_CONNECTIONS: setting('10000', 'connections at a time', integer(1, 1_000_000)),
  PLANT_STORE_MONITOR_PORT: optional(
    'port of /livez, /readyz and /metrics; no TLS, no token',
    integer(0, 65_535),
  ),
  PLANT_STORE_MONITOR_HOST: setting('127.0.0.1', 'address of the monitor', String),
  // Longer than the 60 s for which nginx keeps idle connections.
  PLANT_STORE_KEEP_ALIVE_SECONDS: setting(
    '75',
    'minimum seconds to keep a connection after a response',
    integer(1, 86_400),
  ),
};

export type SettingName = keyof typeof SETTINGS;
export const SETTING_NAMES = Object.keys(SETTINGS) as SettingName[];
export const STORE_SETTING_NAMES = Object.keys(STORE_SETTINGS) as (keyof typeof STORE_SETTINGS)[];

/** The value of each setting: what its parser returns or resolves to. */
export type Settings = {
  readonly [Name in SettingName]: Awaited<ReturnType<(typeof SETTINGS)[Name]['parse']>>;
};

/** The values of the settings that say where plants are kept. */
export type StoreSettings = Pick<Settings, keyof typeof STORE_SETTINGS>;

/** Settings that have no effect alone, each with the setting that it needs. */
export const NEEDS: Readonly<Partial<Record<SettingName, SettingName>>> = {
  PLANT_STORE_DATABASE_PASSWORD_FILE: 'PLANT_STORE_DATABASE_URL',
  PLANT_STORE_DATABASE_CONNECTIONS: 'PLANT_STORE_DATABASE_URL',
  PLANT_STORE_TLS_CERT: 'PLANT_STORE_TLS_KEY',
  PLANT_STORE_TLS_KEY: 'PLANT_STORE_TLS_CERT',
  PLANT_STORE_MONITOR_HOST: 'PLANT_STORE_MONITOR_PORT',
};

/** The pairs of settings that exclude each other. */
export const EXCLUSIVE: readonly (readonly [SettingName, SettingName])[] = [
  ['PLANT_STORE_FILE', 'PLANT_STORE_DATABASE_URL'],
  ['PLANT_STORE_TOKEN', 'PLANT_STORE_TOKEN_FILE'],
];

/** Settings as `--help` shows them. */
export function settingsHelp(): string {
  const width = Math.max(...SETTING_NAMES.map((name) => name.length));
  return SETTING_NAMES.map((name) => {
    const { fallback, about } = SETTINGS[name];
    return `  ${name.padEnd(width)}  ${about}${fallback === undefined ? '' : ` (${fallback})`}`;
  }).join('\n');
}

/**
 * Parses a path, and makes it absolute. No shell has expanded a path in an env file, or removed a
 * comment after it.
 */
function path(value: string): string {
  // If the content of a file, such as a private key, is given in place of its path, it must not get
  // into a message about a missing file.
  if (/[\0-\x1f]/.test(value)) throw new Error('must be a path, without control characters');
  if (/^~|^file:|\/$/i.test(value))
    throw new Error('must not begin with ~ or file:, or end with /');
  if (/\s#/.test(value)) throw new Error('must not end with a comment, which an env file keeps');
  return resolve(value);
}

/**
 * Parses the path of a log. If the path is given, its folder has to exist. Otherwise,
 * `$HOME/plants.jsonl` in an env file, which no shell expands, would name a new, empty log in a new
 * folder. The new log would give ids that are stored in the old log to other plants.
 */
async function logFile(value: string, isGiven: boolean): Promise<string> {
  const file = path(value);
  const folder = dirname(file);
  // With `/.`, `stat` fails if the folder is a file.
  if (isGiven) await nameProblems(`the folder ${folder} must exist`, () => stat(`${folder}/.`));
  return file;
}

function integer(min: number, max: number): Parser<number> {
  return (value) => {
    const number = /^\d+$/.test(value) ? Number(value) : NaN;
    if (number >= min && number <= max) return number;
    throw new RangeError(`must be an integer between ${min} and ${max}`);
  };
}

function databaseUrl(value: string): string {
  parseDatabaseUrl(value);
  return value;
}

/**
 * Checks that the password can be read. Resolves to a function that reads it again, because it may
 * change.
 */
async function passwordFile(value: string): Promise<() => Promise<string>> {
  const read = () => readPassword(path(value));
  await read();
  return read;
}

async function tokenFile(value: string): Promise<{ path: string; tokens: readonly string[] }> {
  const file = path(value);
  return { path: file, tokens: await readTokens(file) };
}

function tokens(value: string): readonly string[] {
  return checkTokens(value.trim().split(/\s+/), 'number');
}
