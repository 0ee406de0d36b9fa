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
  /** The default file, which is missing and has to be created. */
  | { readonly kind: 'new file'; readonly path: string };

/** Where a server listens; `fd` is an inherited socket, in which connections wait while the program restarts. */
export type Address = { readonly host: string; readonly port: number } | { readonly fd: number };

/** The settings that {@link Address} and {@link TokenSource} follow from. */
type Resolved =
  'PLANT_STORE_HOST' | 'PLANT_STORE_PORT' | 'PLANT_STORE_TOKEN' | 'PLANT_STORE_TOKEN_FILE';

/** The settings of the server, apart from those of its store, and what follows from several. */
export interface ServerSettings extends Omit<Settings, Resolved | keyof StoreSettings> {
  readonly address: Address;
  readonly tokenSource: TokenSource;
  readonly tls: TlsMaterial | undefined;
}

/** SD_LISTEN_FDS_START of systemd. */
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
  const { values, problems } = read;
  // The protocol of systemd, sd_listen_fds(3). The variables of another process have no effect.
  const isInherited = environment.LISTEN_PID === String(process.pid);
  if (isInherited) {
    if (environment.LISTEN_FDS !== '1') problems.push('LISTEN_FDS: must be 1');
    for (const name of ['PLANT_STORE_HOST', 'PLANT_STORE_PORT'])
      if (environment[name] !== undefined)
        problems.push(`${name}: must not be set, because a socket is inherited (LISTEN_PID)`);
  }
  const { PLANT_STORE_MAX_BODY: body, PLANT_STORE_MAX_BUFFERED: buffered } = values;
  if (body && buffered && buffered < MIN_BUFFERED_BODIES * body)
    problems.push('PLANT_STORE_MAX_BUFFERED: must be at least eight times PLANT_STORE_MAX_BODY');
  const { PLANT_STORE_HOST: host, PLANT_STORE_PORT: port } = values;
  const tls = await findTls(read);
  const tokenSource = await findTokens(environment, read);
  if (problems.length > 0) throw new SettingsError(problems);
  const address = isInherited ? { fd: FIRST_INHERITED } : { host, port };
  return { ...values, address, tokenSource, tls } as ServerSettings & StoreSettings;
}

/** Finds the certificate and its key. Adds to the problems if they cannot be used. */
async function findTls({ values, problems }: SettingsRead): Promise<TlsMaterial | undefined> {
  const { PLANT_STORE_TLS_CERT: cert, PLANT_STORE_TLS_KEY: key } = values;
  if (cert === undefined || key === undefined) return undefined;
  const names = 'PLANT_STORE_TLS_CERT and PLANT_STORE_TLS_KEY';
  return collectProblems(problems, names, () => readTls(cert, key));
}

/** Finds the tokens. Adds to the problems if there are none, or if they cannot be used. */
async function findTokens(
  environment: Environment,
  { values, problems }: SettingsRead,
): Promise<TokenSource | undefined> {
  const { PLANT_STORE_TOKEN: tokens, PLANT_STORE_TOKEN_FILE: file, PLANT_STORE_FILE: log } = values;
  if (environment.PLANT_STORE_TOKEN !== undefined) return tokens && { kind: 'variable', tokens };
  if (environment.PLANT_STORE_TOKEN_FILE !== undefined) return file && { kind: 'file', ...file };
  if (environment.PLANT_STORE_DATABASE_URL !== undefined)
    problems.push(
      'PLANT_STORE_TOKEN or PLANT_STORE_TOKEN_FILE: must be set, because a database has no folder for a token file',
    );
  else if (log !== undefined) {
    const path = join(dirname(log), 'token');
    const name = 'PLANT_STORE_FILE: the token file beside it';
    const found = await collectProblems(problems, name, () => readTokensIfPresent(path));
    // If it is faulty instead of missing, the caller throws its problem.
    return found ? { kind: 'file', path, tokens: found } : { kind: 'new file', path };
  }
  return undefined;
}
