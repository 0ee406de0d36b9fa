import { dirname, join, resolve } from 'node:path';

import { tokenFault } from '../http/auth.js';
import { DEFAULT_LIMITS, MAX_LIMITS } from '../http/limits.js';

/** What the program is configured to do. */
export interface Settings {
  readonly host: string;
  readonly port: number;
  /** The log, as an absolute path. */
  readonly file: string;
  /** The bearer tokens; none if they are in a file. */
  readonly tokens: readonly string[];
  readonly tokenFile: TokenFile | undefined;
  readonly tls: TlsFiles | undefined;
  readonly maxBodyBytes: number;
  readonly maxBufferedBytes: number;
  readonly maxConnections: number;
}

export interface TokenFile {
  readonly path: string;
  /** Whether the program creates the file if it is missing. */
  readonly createIfMissing: boolean;
}

/** The suffix of a token file's name until the file is complete. */
export const UNFINISHED = '.new';

export interface TlsFiles {
  readonly cert: string;
  readonly key: string;
}

/** Every setting, its default, and its meaning, in the order of the help text. */
const TABLE = {
  PLANT_STORE_HOST: ['127.0.0.1', 'address to listen on'],
  PLANT_STORE_PORT: ['8080', 'port to listen on; 0 takes a free one'],
  PLANT_STORE_FILE: ['data/plants.jsonl', 'the log; created, with its folder, if missing'],
  PLANT_STORE_TOKEN: ['', 'bearer tokens, separated by white space; then no file is used'],
  PLANT_STORE_TOKEN_FILE: ['', 'one bearer token a line; default: token beside the log'],
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

/** The environment that settings are read from. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** Reads the settings. They are valid only if no sentence is added to `faults`. */
export function readSettings(environment: Environment, faults: string[]): Settings {
  function text(name: Name): string | undefined {
    const value = environment[name];
    if (value?.trim() === '') faults.push(`${name}: must not be empty; leave it out instead`);
    return value;
  }

  function integer(name: Name, min: number, max: number): number {
    const value = environment[name] ?? TABLE[name][0];
    const number = /^\d+$/.test(value) ? Number(value) : NaN;
    if (number >= min && number <= max) return number;
    faults.push(`${name}: must be an integer between ${min} and ${max}`);
    return NaN;
  }

  function readTokens(): string[] | undefined {
    const tokens = text('PLANT_STORE_TOKEN')?.split(/\s+/).filter(Boolean);
    for (const [index, token] of tokens?.entries() ?? []) {
      const fault = tokenFault(token);
      if (fault) faults.push(`PLANT_STORE_TOKEN: number ${index + 1} ${fault}`);
    }
    return tokens;
  }

  function readTokenFile(file: string): TokenFile | undefined {
    const given = text('PLANT_STORE_TOKEN_FILE');
    if (given?.trim() === '') return undefined;
    const path = given === undefined ? join(dirname(file), 'token') : resolve(given);
    if (file === path || file === path + UNFINISHED)
      faults.push('PLANT_STORE_FILE: must not have the name of the token file');
    return { path, createIfMissing: given === undefined };
  }

  function tls(): TlsFiles | undefined {
    const cert = text('PLANT_STORE_TLS_CERT');
    const key = text('PLANT_STORE_TLS_KEY');
    if ((cert === undefined) !== (key === undefined))
      faults.push('PLANT_STORE_TLS_CERT and PLANT_STORE_TLS_KEY: must be set together');
    return cert?.trim() && key?.trim() ? { cert: resolve(cert), key: resolve(key) } : undefined;
  }

  const tokens = readTokens();
  const file = resolve(text('PLANT_STORE_FILE') ?? TABLE.PLANT_STORE_FILE[0]);
  const maxBodyBytes = integer('PLANT_STORE_MAX_BODY', 1, MAX_LIMITS.maxBodyBytes);
  return {
    host: text('PLANT_STORE_HOST') ?? TABLE.PLANT_STORE_HOST[0],
    port: integer('PLANT_STORE_PORT', 0, 65_535),
    file,
    tokens: tokens ?? [],
    tokenFile: tokens ? undefined : readTokenFile(file),
    tls: tls(),
    maxBodyBytes,
    maxBufferedBytes: integer(
      'PLANT_STORE_MAX_BUFFERED',
      maxBodyBytes || 1,
      MAX_LIMITS.maxBufferedBytes,
    ),
    maxConnections: integer('PLANT_STORE_MAX_CONNECTIONS', 1, 1_000_000),
  };
}

/** The settings as `--help` shows them. */
export function settingsHelp(): string {
  const width = Math.max(...Object.keys(TABLE).map((name) => name.length));
  return Object.entries(TABLE)
    .map(
      ([name, [fallback, about]]) =>
        `  ${name.padEnd(width)}  ${about}${fallback && ` (${fallback})`}`,
    )
    .join('\n');
}
