import { resolve } from 'node:path';

import { DEFAULT_LIMITS } from '../http/memory.js';
import { reportToConsole } from '../report.js';
import type { NamedFile } from './credentials.js';
import { collect, SettingsError } from './settings-error.js';

/** The environment that settings are read from. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** Every setting, its default, and its meaning, in the order of the help text. */
export const SETTINGS = {
  PLANT_STORE_HOST: ['127.0.0.1', 'address to listen on'],
  PLANT_STORE_PORT: ['8080', 'port to listen on; 0 takes a free one'],
  PLANT_STORE_FILE: ['data/plants.jsonl', 'the log; created, with its folder, if missing'],
  PLANT_STORE_DATABASE_URL: ['', 'postgres://user[:password]@host[:port][,…]/database'],
  PLANT_STORE_DATABASE_PASSWORD_FILE: ['', 'file with the password; read for each connection'],
  PLANT_STORE_DATABASE_CONNECTIONS: ['2', 'connections to the database'],
  PLANT_STORE_DATABASE_ACCEPT_DATA_LOSS: [
    'false',
    'true accepts fsync=off and synchronous_commit=off',
  ],
  PLANT_STORE_TOKEN: ['', 'bearer tokens, separated by white space, instead of a file'],
  PLANT_STORE_TOKEN_FILE: ['', 'file with one bearer token a line'],
  PLANT_STORE_TLS_CERT: ['', 'PEM file of a certificate; with its key, HTTPS is served'],
  PLANT_STORE_TLS_KEY: ['', 'PEM file of the private key'],
  PLANT_STORE_MAX_BODY: [`${DEFAULT_LIMITS.maxBodyBytes}`, 'the largest body, in bytes'],
  PLANT_STORE_MAX_BUFFERED: [
    `${DEFAULT_LIMITS.maxBufferedBytes}`,
    'bytes for requests; at least eight of the largest bodies',
  ],
  PLANT_STORE_MAX_CONNECTIONS: ['10000', 'connections at a time'],
  PLANT_STORE_MONITOR_PORT: ['', 'port of /livez, /readyz and /metrics; no TLS, no token'],
  PLANT_STORE_MONITOR_HOST: ['127.0.0.1', 'address of the monitor'],
  // Longer than the 60 s for which nginx keeps idle connections.
  PLANT_STORE_KEEP_ALIVE_SECONDS: ['75', 'seconds for which idle connections are kept, at least'],
} as const satisfies Record<string, readonly [fallback: string, about: string]>;

export type SettingName = keyof typeof SETTINGS;

export const SETTING_NAMES = Object.keys(SETTINGS) as SettingName[];
export const isOfDatabase = (name: SettingName): boolean =>
  name.startsWith('PLANT_STORE_DATABASE_');

/** The settings of the program that keeps plants in a log. */
export const LOG_SETTINGS = SETTING_NAMES.filter((name) => !isOfDatabase(name));
/** The settings of the program that keeps plants in a database. */
export const DATABASE_SETTINGS = SETTING_NAMES.filter((name) => name !== 'PLANT_STORE_FILE');

export type Reader = ReturnType<typeof createReader>;

/**
 * The variables that Kubernetes sets for a Service named plant-store or plant-store-…, except the one with its
 * URL, PLANT_STORE_PORT or PLANT_STORE_…_PORT.
 */
const SERVICE_LINK =
  /_(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)$/;

/** Whether a variable is one that Kubernetes sets in all containers, for each Service. */
function isServiceLink(name: string, value = ''): boolean {
  const isAddress = name.endsWith('_PORT') && /^(?:tcp|udp|sctp):\/\//.test(value);
  return isAddress || SERVICE_LINK.test(name);
}

/**
 * Returns a fault if variables look like settings but are none. `names` are the settings that the fault
 * offers instead.
 */
function unknownNames(environment: Environment, names: readonly SettingName[]): string[] {
  const unknown = Reflect.ownKeys(environment)
    .map(String)
    .filter(
      (name) => name.startsWith('PLANT_STORE_') && !SETTING_NAMES.includes(name as SettingName),
    )
    .filter((name) => !isServiceLink(name, environment[name]));
  return unknown.length === 0
    ? []
    : [`${unknown.join(', ')}: no such setting; the settings are ${names.join(', ')}`];
}

/** Returns the settings in an environment, except what Kubernetes has set. */
function withoutServiceLinks(environment: Environment): Partial<Record<SettingName, string>> {
  const settings: Partial<Record<SettingName, string>> = {};
  for (const name of SETTING_NAMES) {
    const value = environment[name];
    if (isServiceLink(name, value))
      reportToConsole(`${name}: ignored, because Kubernetes has set it for a Service of this name`);
    else if (value !== undefined) settings[name] = value;
  }
  return settings;
}

/**
 * Returns functions that each read one setting, or wait for what it names to be read, and collect the
 * faults. `valid` throws all of them together.
 */
export function createReader(given: Environment, names: readonly SettingName[]) {
  const environment = withoutServiceLinks(given);
  const faults = unknownNames(given, names);
  const fault = (message: string): void => void faults.push(message);

  function text(name: SettingName): string | undefined {
    const value = environment[name];
    if (value?.trim() === '') fault(`${name}: must not be empty; leave it out instead`);
    return value;
  }

  function path(name: SettingName): NamedFile | undefined {
    const value = text(name);
    return value?.trim() ? { path: resolve(value), setting: name } : undefined;
  }

  function integer(name: SettingName, min: number, max: number): number {
    const value = environment[name] ?? SETTINGS[name][0];
    const number = /^\d+$/.test(value) ? Number(value) : NaN;
    if (number >= min && number <= max) return number;
    fault(`${name}: must be an integer between ${min} and ${max}`);
    return NaN;
  }

  function flag(name: SettingName): boolean {
    const value = environment[name] ?? SETTINGS[name][0];
    if (value !== 'true' && value !== 'false') fault(`${name}: must be true or false`);
    return value === 'true';
  }

  function result<Result>(reading: Promise<Result>): Promise<Result | undefined> {
    return collect(faults, reading);
  }

  function valid<Settings>(settings: Settings): Settings {
    if (faults.length > 0) throw new SettingsError(faults);
    return settings;
  }

  return { given, environment, fault, text, path, integer, flag, result, valid };
}

/** Settings as `--help` shows them. */
export function settingsHelp(names: readonly SettingName[]): string {
  const width = Math.max(...names.map((name) => name.length));
  return names
    .map((name) => {
      const [fallback, about] = SETTINGS[name];
      return `  ${name.padEnd(width)}  ${about}${fallback && ` (${fallback})`}`;
    })
    .join('\n');
}
