import { dirname, join } from 'node:path';

import { MIN_BUFFERED_BODIES } from '../../http/limits.js';
import { collectProblems, SettingsError } from './error.js';
import { readTls, readTokensIfPresent, type TlsMaterial } from './files.js';
import { readSettings, type Environment, type SettingsRead } from './read.js';
import { SETTING_NAMES, type Settings, type StoreSettings } from './table.js';

/** Where the bearer tokens come from. */
export type TokenSource =
  | { readonly kind: 'variable'; readonly tokens: readonly string[] }
  | { readonly kind: 'file'; readonly path: string; readonly tokens: readonly string[] }
  /** The token file beside the log, which is missing and has to be created. */
  | { readonly kind: 'new file'; readonly path: string };

/**
 * Where a server listens. `fd` is the descriptor of an inherited socket, which queues connections
 * while the program restarts.
 */
export type Address = { readonly host: string; readonly port: number } | { readonly fd: number };

/** The settings that {@link ServerSettings} has as an {@link Address} and a {@link TokenSource}. */
type Resolved =
  'PLANT_STORE_HOST' | 'PLANT_STORE_PORT' | 'PLANT_STORE_TOKEN' | 'PLANT_STORE_TOKEN_FILE';

/** The settings of the server but those of its store, and what follows from several settings. */
export interface ServerSettings extends Omit<Settings, Resolved | keyof StoreSettings> {
  readonly address: Address;
  readonly tokenSource: TokenSource;
  readonly tls: TlsMaterial | undefined;
}

/** The first descriptor that systemd passes on: its SD_LISTEN_FDS_START. */
const FIRST_INHERITED = 3;

/**
 * Reads the settings of the server, and the files that they name.
 *
 * @throws SettingsError with all problems.
 */
export async function readServerSettings(
  environment: Environment,
): Promise<ServerSettings & StoreSettings> {
  const read = await readSettings(environment, SETTING_NAMES);
  const { given, values, problems } = read;
  // The protocol of systemd, sd_listen_fds(3). If LISTEN_PID names another process, the variables
  // are meant for that process.
  const isInherited = environment.LISTEN_PID === String(process.pid);
  if (isInherited) {
    if (environment.LISTEN_FDS !== '1') problems.push('LISTEN_FDS: must be 1');
    for (const name of ['PLANT_STORE_HOST', 'PLANT_STORE_PORT'] as const)
      if (given.has(name))
        problems.push(`${name}: must not be set, because a socket is inherited (LISTEN_PID)`);
  }
  // `createPlantHandler` would find this, too, but without the names of the settings.
  const { PLANT_STORE_MAX_BODY: body, PLANT_STORE_MAX_BUFFERED: buffered } = values;
  if (body && buffered && buffered < MIN_BUFFERED_BODIES * body)
    problems.push('PLANT_STORE_MAX_BUFFERED: must be at least eight times PLANT_STORE_MAX_BODY');
  const { PLANT_STORE_HOST: host, PLANT_STORE_PORT: port } = values;
  const tls = await readTlsIfSet(read);
  const tokenSource = await findTokens(read);
  if (problems.length > 0) throw new SettingsError(problems);
  // Without problems, every setting has its value.
  const address = isInherited ? { fd: FIRST_INHERITED } : { host, port };
  return { ...values, address, tokenSource, tls } as ServerSettings & StoreSettings;
}

/** Reads the certificate and its key if they are set. Adds to the problems if they are invalid. */
async function readTlsIfSet({ values, problems }: SettingsRead): Promise<TlsMaterial | undefined> {
  const { PLANT_STORE_TLS_CERT: cert, PLANT_STORE_TLS_KEY: key } = values;
  if (cert === undefined || key === undefined) return undefined;
  const names = 'PLANT_STORE_TLS_CERT and PLANT_STORE_TLS_KEY';
  return collectProblems(problems, names, () => readTls(cert, key));
}

/**
 * Finds where the tokens come from. Resolves to `undefined` after adding to the problems if the
 * settings have no valid tokens.
 */
async function findTokens({
  given,
  values,
  problems,
}: SettingsRead): Promise<TokenSource | undefined> {
  const { PLANT_STORE_TOKEN: tokens, PLANT_STORE_TOKEN_FILE: file, PLANT_STORE_FILE: log } = values;
  if (tokens) return { kind: 'variable', tokens };
  if (file) return { kind: 'file', ...file };
  // A setting that is given but has no value is not valid: its problem has been added already.
  if (given.has('PLANT_STORE_TOKEN') || given.has('PLANT_STORE_TOKEN_FILE')) return undefined;
  if (given.has('PLANT_STORE_DATABASE_URL')) {
    problems.push(
      'PLANT_STORE_TOKEN or PLANT_STORE_TOKEN_FILE: must be set, ' +
        'because a database has no folder for a token file',
    );
    return undefined;
  }
  if (log === undefined) return undefined;
  return collectProblems(problems, 'PLANT_STORE_FILE: the token file beside it', () =>
    findTokensBeside(log),
  );
}

async function findTokensBeside(log: string): Promise<TokenSource> {
  const path = join(dirname(log), 'token');
  const tokens = await readTokensIfPresent(path);
  return tokens ? { kind: 'file', path, tokens } : { kind: 'new file', path };
}
