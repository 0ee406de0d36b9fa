import { dirname, join, resolve } from 'node:path';

import { databaseUrlFault } from '../database-url.js';
import { tokenFault } from '../http/auth.js';
import { DEFAULT_LIMITS, MAX_LIMITS } from '../http/limits.js';

/** The settings that both programs have. */
export interface ServerSettings {
  readonly host: string;
  readonly port: number;
  /** The bearer tokens; none if they are in a file. */
  readonly tokens: readonly string[];
  readonly tokenFile: TokenFile | undefined;
  readonly tls: TlsFiles | undefined;
  readonly maxBodyBytes: number;
  readonly maxBufferedBytes: number;
  readonly maxConnections: number;
}

export interface LogSettings extends ServerSettings {
  /** The log, as an absolute path. */
  readonly file: string;
}

export interface DatabaseSettings {
  readonly url: string;
  readonly passwordFile: string | undefined;
  readonly connections: number;
  readonly acceptDataLoss: boolean;
}

export interface TokenFile {
  readonly path: string;
  /** Whether the program creates the file if it is missing. */
  readonly createIfMissing: boolean;
}

export interface TlsFiles {
  readonly cert: string;
  readonly key: string;
}

/** Every setting, its default, and its meaning, in the order of the help text. */
const TABLE = {
  PLANT_STORE_HOST: ['127.0.0.1', 'address to listen on'],
  PLANT_STORE_PORT: ['8080', 'port to listen on; 0 takes a free one'],
  PLANT_STORE_FILE: ['data/plants.jsonl', 'the log; created, with its folder, if missing'],
  PLANT_STORE_DATABASE_URL: ['', 'postgres://user[:password]@host[:port][,…]/database'],
  PLANT_STORE_DATABASE_PASSWORD_FILE: ['', 'the password; read for each connection'],
  PLANT_STORE_DATABASE_CONNECTIONS: ['2', 'connections to the database'],
  PLANT_STORE_DATABASE_ACCEPT_DATA_LOSS: [
    'false',
    'true accepts fsync=off and synchronous_commit=off',
  ],
  PLANT_STORE_TOKEN: ['', 'bearer tokens, split at white space; then no file is used'],
  PLANT_STORE_TOKEN_FILE: ['', 'one bearer token a line'],
  PLANT_STORE_TLS_CERT: ['', 'PEM file; with the key: serve HTTPS'],
  PLANT_STORE_TLS_KEY: ['', 'PEM file'],
  PLANT_STORE_MAX_BODY: [`${DEFAULT_LIMITS.maxBodyBytes}`, 'the largest body, in bytes'],
  PLANT_STORE_MAX_BUFFERED: [
    `${DEFAULT_LIMITS.maxBufferedBytes}`,
    'bytes held for all requests together',
  ],
  PLANT_STORE_MAX_CONNECTIONS: ['10000', 'connections at a time'],
} as const satisfies Record<string, readonly [fallback: string, about: string]>;

type Name = keyof typeof TABLE;

const NAMES = Object.keys(TABLE) as Name[];
const isOfDatabase = (name: Name): boolean => name.startsWith('PLANT_STORE_DATABASE_');

/** The settings of the program that keeps plants in a log. */
export const LOG_SETTINGS = NAMES.filter((name) => !isOfDatabase(name));
/** The settings of the program that keeps plants in a database. */
export const DATABASE_SETTINGS = NAMES.filter((name) => name !== 'PLANT_STORE_FILE');

/** The environment that settings are read from. */
export type Environment = Readonly<Record<string, string | undefined>>;

/*
 * The functions below add a message to `faults` for each fault of the environment. The settings
 * that they return are valid only if there is none.
 */

/** Reads the settings of the program that keeps plants in a log. */
export function readLogSettings(environment: Environment, faults: string[]): LogSettings {
  for (const name of NAMES.filter(isOfDatabase))
    if (environment[name] !== undefined)
      faults.push(`${name}: is a setting of plant-store-postgres (dist/postgres/server.js)`);
  const file = readLogPath(environment, faults);
  const settings = readShared(environment, faults, join(dirname(file), 'token'));
  const { tokenFile } = settings;
  if (file === tokenFile?.path)
    faults.push('PLANT_STORE_FILE: must not have the name of the token file');
  return { ...settings, file };
}

/** Reads the absolute path of the log. */
export function readLogPath(environment: Environment, faults: string[]): string {
  const { path } = createReader(environment, faults);
  return path('PLANT_STORE_FILE') ?? resolve(TABLE.PLANT_STORE_FILE[0]);
}

/** Reads the settings of the program for a database, except those of the database itself. */
export function readServerSettings(environment: Environment, faults: string[]): ServerSettings {
  const { PLANT_STORE_FILE, PLANT_STORE_TOKEN, PLANT_STORE_TOKEN_FILE } = environment;
  if (PLANT_STORE_FILE !== undefined)
    faults.push('PLANT_STORE_FILE: is a setting of plant-store (dist/server.js)');
  if (PLANT_STORE_TOKEN === undefined && PLANT_STORE_TOKEN_FILE === undefined)
    faults.push('PLANT_STORE_TOKEN or PLANT_STORE_TOKEN_FILE: must be set');
  return readShared(environment, faults);
}

/** Reads the settings of the database. */
export function readDatabaseSettings(environment: Environment, faults: string[]): DatabaseSettings {
  const { path, integer, flag } = createReader(environment, faults);
  const url = environment.PLANT_STORE_DATABASE_URL ?? '';
  const fault = databaseUrlFault(url);
  if (fault) faults.push(`PLANT_STORE_DATABASE_URL: ${fault}`);
  return {
    url,
    passwordFile: path('PLANT_STORE_DATABASE_PASSWORD_FILE'),
    connections: integer('PLANT_STORE_DATABASE_CONNECTIONS', 1, 1_000),
    acceptDataLoss: flag('PLANT_STORE_DATABASE_ACCEPT_DATA_LOSS'),
  };
}

/** Reads the settings of both programs. A token file with the default path is created if it is missing. */
function readShared(
  environment: Environment,
  faults: string[],
  defaultTokenFile?: string,
): ServerSettings {
  const { text, path, integer } = createReader(environment, faults);

  function splitTokens(): string[] | undefined {
    const tokens = text('PLANT_STORE_TOKEN')?.split(/\s+/).filter(Boolean);
    for (const [index, token] of tokens?.entries() ?? []) {
      const fault = tokenFault(token);
      if (fault) faults.push(`PLANT_STORE_TOKEN: number ${index + 1} ${fault}`);
    }
    return tokens;
  }

  function tokenFile(): TokenFile | undefined {
    const createIfMissing = environment.PLANT_STORE_TOKEN_FILE === undefined;
    const file = createIfMissing ? defaultTokenFile : path('PLANT_STORE_TOKEN_FILE');
    return file === undefined ? undefined : { path: file, createIfMissing };
  }

  function tlsFiles(): TlsFiles | undefined {
    const cert = path('PLANT_STORE_TLS_CERT');
    const key = path('PLANT_STORE_TLS_KEY');
    if ((cert === undefined) !== (key === undefined))
      faults.push('PLANT_STORE_TLS_CERT and PLANT_STORE_TLS_KEY: must be set together');
    return cert === undefined || key === undefined ? undefined : { cert, key };
  }

  const tokens = splitTokens();
  const maxBodyBytes = integer('PLANT_STORE_MAX_BODY', 1, MAX_LIMITS.maxBodyBytes);
  return {
    host: text('PLANT_STORE_HOST') ?? TABLE.PLANT_STORE_HOST[0],
    port: integer('PLANT_STORE_PORT', 0, 65_535),
    tokens: tokens ?? [],
    tokenFile: tokens ? undefined : tokenFile(),
    tls: tlsFiles(),
    maxBodyBytes,
    maxBufferedBytes: integer(
      'PLANT_STORE_MAX_BUFFERED',
      maxBodyBytes || 1,
      MAX_LIMITS.maxBufferedBytes,
    ),
    maxConnections: integer('PLANT_STORE_MAX_CONNECTIONS', 1, 1_000_000),
  };
}

/** Functions that read one setting. */
function createReader(environment: Environment, faults: string[]) {
  function text(name: Name): string | undefined {
    const value = environment[name];
    if (value?.trim() === '') faults.push(`${name}: must not be empty; leave it out instead`);
    return value;
  }

  function path(name: Name): string | undefined {
    const value = text(name);
    return value?.trim() ? resolve(value) : undefined;
  }

  function integer(name: Name, min: number, max: number): number {
    const value = environment[name] ?? TABLE[name][0];
    const number = /^\d+$/.test(value) ? Number(value) : NaN;
    if (number >= min && number <= max) return number;
    faults.push(`${name}: must be an integer between ${min} and ${max}`);
    return NaN;
  }

  function flag(name: Name): boolean {
    const value = environment[name] ?? TABLE[name][0];
    if (value !== 'true' && value !== 'false') faults.push(`${name}: must be true or false`);
    return value === 'true';
  }

  return { text, path, integer, flag };
}

/** Settings as `--help` shows them. */
export function settingsHelp(names: readonly Name[]): string {
  const width = Math.max(...names.map((name) => name.length));
  return names
    .map((name) => {
      const [fallback, about] = TABLE[name];
      return `  ${name.padEnd(width)}  ${about}${fallback && ` (${fallback})`}`;
    })
    .join('\n');
}
