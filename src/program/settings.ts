import { dirname, join, resolve } from 'node:path';

import { tokenFault } from '../http/auth.js';
import { MAX_LIMITS, MIN_BUFFERED_BODIES } from '../http/memory.js';
import { parseDatabaseUrl } from '../postgres/url.js';
import { messageOf } from '../system-error.js';
import {
  readPassword,
  readTls,
  readTokens,
  readTokensIfPresent,
  type NamedFile,
  type Tls,
} from './credentials.js';
import {
  createReader,
  DATABASE_SETTINGS,
  isOfDatabase,
  LOG_SETTINGS,
  SETTING_NAMES,
  SETTINGS,
  type Environment,
  type Reader,
} from './environment.js';

/** The settings that both programs have. */
export interface ServerSettings {
  readonly host: string;
  readonly port: number;
  /** A listening socket that the process has inherited, which is used instead of host and port. */
  readonly inheritedSocket: number | undefined;
  /** The bearer tokens; none if the token file has to be created. */
  readonly tokens: readonly string[];
  /** The file that holds the tokens, unless they are set directly. */
  readonly tokenFile: NamedFile | undefined;
  readonly tls: Tls | undefined;
  readonly maxBodyBytes: number;
  readonly maxBufferedBytes: number;
  readonly maxConnections: number;
  /** How long idle connections are kept at least, in milliseconds. */
  readonly keepAliveMs: number;
  /** Where the monitor listens, if there is one. */
  readonly monitor: { readonly host: string; readonly port: number } | undefined;
}

export interface LogSettings extends ServerSettings {
  /** The log, as an absolute path. */
  readonly file: string;
}

export interface DatabaseSettings {
  readonly url: string;
  readonly passwordFile: NamedFile | undefined;
  readonly connections: number;
  readonly acceptDataLoss: boolean;
}

/**
 * Reads the settings of the program that keeps plants in a log, and the files that they name.
 *
 * @throws SettingsError with all faults.
 */
export async function readLogSettings(environment: Environment): Promise<LogSettings> {
  const reader = createReader(environment, LOG_SETTINGS);
  for (const name of SETTING_NAMES.filter(isOfDatabase))
    if (reader.environment[name] !== undefined)
      reader.fault(`${name}: is a setting of plant-store-postgres (dist/postgres-server.js)`);
  const file = logPath(reader);
  const settings = await readShared(reader, join(dirname(file), 'token'));
  if (file === settings.tokenFile?.path)
    reader.fault('PLANT_STORE_FILE: must not have the name of the token file');
  return reader.valid({ ...settings, file });
}

/**
 * Reads the absolute path of the log.
 *
 * @throws SettingsError with all faults.
 */
export function readLogPath(environment: Environment): string {
  const reader = createReader(environment, LOG_SETTINGS);
  return reader.valid(logPath(reader));
}

function logPath({ path }: Reader): string {
  return path('PLANT_STORE_FILE')?.path ?? resolve(SETTINGS.PLANT_STORE_FILE[0]);
}

/**
 * Reads the settings of the program for a database and of the database itself, and the files that they
 * name.
 *
 * @throws SettingsError with all faults.
 */
export async function readDatabaseServerSettings(
  environment: Environment,
): Promise<ServerSettings & DatabaseSettings> {
  const reader = createReader(environment, DATABASE_SETTINGS);
  const { PLANT_STORE_FILE, PLANT_STORE_TOKEN, PLANT_STORE_TOKEN_FILE } = reader.environment;
  if (PLANT_STORE_FILE !== undefined)
    reader.fault('PLANT_STORE_FILE: is a setting of plant-store (dist/server.js)');
  if (PLANT_STORE_TOKEN === undefined && PLANT_STORE_TOKEN_FILE === undefined)
    reader.fault('PLANT_STORE_TOKEN or PLANT_STORE_TOKEN_FILE: must be set');
  return reader.valid({ ...(await readShared(reader)), ...(await readDatabase(reader)) });
}

/**
 * Reads the settings of the database, and its password.
 *
 * @throws SettingsError with all faults.
 */
export async function readDatabaseSettings(environment: Environment): Promise<DatabaseSettings> {
  const reader = createReader(environment, DATABASE_SETTINGS);
  return reader.valid(await readDatabase(reader));
}

async function readDatabase(reader: Reader): Promise<DatabaseSettings> {
  const { environment, path, integer, flag, fault, result } = reader;
  const url = environment.PLANT_STORE_DATABASE_URL ?? '';
  try {
    parseDatabaseUrl(url);
  } catch (error) {
    fault(`PLANT_STORE_DATABASE_URL: ${messageOf(error)}`);
  }
  const passwordFile = path('PLANT_STORE_DATABASE_PASSWORD_FILE');
  if (passwordFile) await result(readPassword(passwordFile));
  return {
    url,
    passwordFile,
    connections: integer('PLANT_STORE_DATABASE_CONNECTIONS', 1, 1_000),
    acceptDataLoss: flag('PLANT_STORE_DATABASE_ACCEPT_DATA_LOSS'),
  };
}

/** Where the monitor listens. `serverPort` is the port of the server, or 0 if that is not configured. */
function readMonitor(
  { environment, text, integer, fault }: Reader,
  serverPort: number,
): ServerSettings['monitor'] {
  const host = text('PLANT_STORE_MONITOR_HOST') ?? SETTINGS.PLANT_STORE_MONITOR_HOST[0];
  if (environment.PLANT_STORE_MONITOR_PORT === undefined) return undefined;
  const port = integer('PLANT_STORE_MONITOR_PORT', 0, 65_535);
  if (port === serverPort && port !== 0)
    fault('PLANT_STORE_MONITOR_PORT: must not be PLANT_STORE_PORT');
  return { host, port };
}

/** SD_LISTEN_FDS_START of systemd. */
const FIRST_INHERITED = 3;

/** Reads the settings that both programs have. A token file with the default path may be missing. */
async function readShared(reader: Reader, defaultTokenFile?: string): Promise<ServerSettings> {
  const { given, environment, text, path, integer, fault, result } = reader;

  /** The protocol of systemd: sd_listen_fds(3). The variables of another process have no effect. */
  function inheritedSocket(): number | undefined {
    const { LISTEN_PID, LISTEN_FDS } = given;
    if (LISTEN_PID !== String(process.pid)) return undefined;
    if (LISTEN_FDS !== '1') fault('LISTEN_FDS: must be 1');
    for (const name of ['PLANT_STORE_HOST', 'PLANT_STORE_PORT'] as const)
      if (environment[name] !== undefined)
        fault(`${name}: must not be set, because a socket is inherited (LISTEN_PID)`);
    return FIRST_INHERITED;
  }

  function splitTokens(): string[] | undefined {
    const tokens = text('PLANT_STORE_TOKEN')?.split(/\s+/).filter(Boolean);
    for (const [index, token] of tokens?.entries() ?? []) {
      const why = tokenFault(token);
      if (why) fault(`PLANT_STORE_TOKEN: number ${index + 1} ${why}`);
    }
    return tokens;
  }

  async function tokensInFile(): Promise<Pick<ServerSettings, 'tokens' | 'tokenFile'>> {
    const named = path('PLANT_STORE_TOKEN_FILE');
    if (named) return { tokens: (await result(readTokens(named))) ?? [], tokenFile: named };
    if (defaultTokenFile === undefined) return { tokens: [], tokenFile: undefined };
    const tokenFile = { path: defaultTokenFile, setting: undefined };
    return { tokens: (await result(readTokensIfPresent(tokenFile))) ?? [], tokenFile };
  }

  async function tls(): Promise<Tls | undefined> {
    const cert = path('PLANT_STORE_TLS_CERT');
    const key = path('PLANT_STORE_TLS_KEY');
    if (!cert !== !key) fault('PLANT_STORE_TLS_CERT and PLANT_STORE_TLS_KEY: must be set together');
    if (!cert || !key) return undefined;
    return result(readTls({ cert, key }));
  }

  const host = text('PLANT_STORE_HOST') ?? SETTINGS.PLANT_STORE_HOST[0];
  const port = integer('PLANT_STORE_PORT', 0, 65_535);
  const socket = inheritedSocket();
  const maxBodyBytes = integer('PLANT_STORE_MAX_BODY', 1, MAX_LIMITS.maxBodyBytes);
  const tokens = splitTokens();
  return {
    host,
    port,
    inheritedSocket: socket,
    maxBodyBytes,
    maxBufferedBytes: integer(
      'PLANT_STORE_MAX_BUFFERED',
      // 1 if it is NaN, which has been reported.
      MIN_BUFFERED_BODIES * (maxBodyBytes || 1),
      MAX_LIMITS.maxBufferedBytes,
    ),
    maxConnections: integer('PLANT_STORE_MAX_CONNECTIONS', 1, 1_000_000),
    keepAliveMs: 1_000 * integer('PLANT_STORE_KEEP_ALIVE_SECONDS', 1, 86_400),
    monitor: readMonitor(reader, socket === undefined ? port : 0),
    ...(tokens ? { tokens, tokenFile: undefined } : await tokensInFile()),
    tls: await tls(),
  };
}
