import { dirname, join } from 'node:path';

import { MIN_BUFFERED_BODIES } from '../../http/limits.js';
import { problemsOf } from './error.js';
import { pairProblem, readTokensIfPresent } from './files.js';
import {
  exclusionProblems,
  readSettings,
  throwAny,
  type Environment,
  type SettingsRead,
} from './read.js';
import { SETTING_NAMES, type Settings } from './table.js';

/** Where the bearer tokens come from. */
export type TokenSource =
  | { readonly kind: 'variable'; readonly tokens: readonly string[] }
  | { readonly kind: 'file'; readonly path: string; readonly tokens: readonly string[] }
  /** The default file, which is missing and has to be created. */
  | { readonly kind: 'new file'; readonly path: string };

/** All settings, and what follows from them. */
export interface ServerSettings extends Settings {
  /** A listening socket that the process has inherited, which is used instead of host and port. */
  readonly inheritedSocket: number | undefined;
  readonly tokenSource: TokenSource;
}

/**
 * Reads the settings of the server, and the files that they name.
 *
 * @throws SettingsError with all problems.
 */
export async function readServerSettings(environment: Environment): Promise<ServerSettings> {
  const { values, problems } = await readSettings(environment, SETTING_NAMES);
  // The protocol of systemd, sd_listen_fds(3). The variables of another process have no effect.
  const isInherited = environment.LISTEN_PID === String(process.pid);
  problems.push(
    ...exclusionProblems(environment, 'PLANT_STORE_TOKEN', 'PLANT_STORE_TOKEN_FILE'),
    ...tlsProblems(values),
    ...limitProblems(values),
    ...(isInherited ? inheritedProblems(environment) : portProblems(values)),
  );
  const tokenSource = await findTokens(environment, { values, problems });
  if (tokenSource && 'path' in tokenSource && tokenSource.path === values.PLANT_STORE_FILE)
    problems.push('PLANT_STORE_FILE: must not have the name of the token file');
  throwAny(problems);
  const inheritedSocket = isInherited ? FIRST_INHERITED : undefined;
  return { ...values, inheritedSocket, tokenSource } as ServerSettings;
}

/** Finds the tokens. Adds to the problems if there are none, or if they cannot be used. */
async function findTokens(
  given: Environment,
  { values, problems }: SettingsRead,
): Promise<TokenSource | undefined> {
  const { PLANT_STORE_TOKEN: tokens, PLANT_STORE_TOKEN_FILE: file, PLANT_STORE_FILE: log } = values;
  if (given.PLANT_STORE_TOKEN !== undefined) return tokens && { kind: 'variable', tokens };
  if (given.PLANT_STORE_TOKEN_FILE !== undefined) return file && { kind: 'file', ...file };
  if (given.PLANT_STORE_DATABASE_URL !== undefined)
    problems.push('PLANT_STORE_TOKEN or PLANT_STORE_TOKEN_FILE: must be set');
  else if (log !== undefined) return findDefaultTokens(log, problems);
  return undefined;
}

async function findDefaultTokens(
  log: string,
  problems: string[],
): Promise<TokenSource | undefined> {
  const path = join(dirname(log), 'token');
  try {
    const tokens = await readTokensIfPresent(path);
    return tokens ? { kind: 'file', path, tokens } : { kind: 'new file', path };
  } catch (error) {
    const ofFile = (problem: string) => `PLANT_STORE_FILE: the token file beside it, ${problem}`;
    problems.push(...problemsOf(error).map(ofFile));
    return undefined;
  }
}

function tlsProblems(values: Partial<Settings>): string[] {
  const { PLANT_STORE_TLS_CERT: cert, PLANT_STORE_TLS_KEY: key } = values;
  const problem = cert && key && pairProblem(cert, key);
  return problem ? [`PLANT_STORE_TLS_KEY: ${problem}`] : [];
}

function limitProblems(values: Partial<Settings>): string[] {
  const { PLANT_STORE_MAX_BODY: body, PLANT_STORE_MAX_BUFFERED: buffered } = values;
  if (!body || !buffered || buffered >= MIN_BUFFERED_BODIES * body) return [];
  return ['PLANT_STORE_MAX_BUFFERED: must be at least eight times PLANT_STORE_MAX_BODY'];
}

function portProblems(values: Partial<Settings>): string[] {
  const { PLANT_STORE_PORT: port, PLANT_STORE_MONITOR_PORT: monitorPort } = values;
  // Two free ports differ.
  return monitorPort && monitorPort === port
    ? ['PLANT_STORE_MONITOR_PORT: must not be PLANT_STORE_PORT']
    : [];
}

/** SD_LISTEN_FDS_START of systemd. */
const FIRST_INHERITED = 3;

function inheritedProblems(given: Environment): string[] {
  const problems = (['PLANT_STORE_HOST', 'PLANT_STORE_PORT'] as const)
    .filter((name) => given[name] !== undefined)
    .map((name) => `${name}: must not be set, because a socket is inherited (LISTEN_PID)`);
  return given.LISTEN_FDS === '1' ? problems : ['LISTEN_FDS: must be 1', ...problems];
}
