import { createPrivateKey, randomBytes, X509Certificate } from 'node:crypto';
import { constants } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { createSecureContext } from 'node:tls';

import { tokenProblem } from '../../http/auth.js';
import { MAX_TOKENS } from '../../http/limits.js';
import { syncFolder } from '../../log/files.js';
import { nodeSystem } from '../../log/system.js';
import { codeOf, reasonOf } from '../../system-error.js';
import { collectProblems, nameProblems, SettingsError } from './error.js';

/** 256 bits, which cannot be guessed. RFC 6750 prescribes no length. */
const TOKEN_BYTES = 32;

/** A certificate, with its intermediate certificates, and its private key, in PEM. */
export interface TlsMaterial {
  readonly cert: Buffer;
  readonly key: Buffer;
}

/**
 * Checks tokens, and returns them without the empty ones. In the problem of a token, `noun`
 * precedes its number: `line 2 is longer than 511 characters`.
 *
 * @throws SettingsError with the problem of each token, or only that there are too many.
 */
export function checkTokens(given: readonly string[], noun: 'line' | 'number'): readonly string[] {
  const tokens = given.filter((token) => token !== '');
  if (tokens.length > MAX_TOKENS)
    throw new SettingsError([`holds ${tokens.length} tokens; at most ${MAX_TOKENS} are allowed`]);
  const problems = given.flatMap((token, index) => {
    const problem = token === '' ? undefined : tokenProblem(token);
    return problem === undefined ? [] : `${noun} ${index + 1} ${problem}`;
  });
  if (problems.length > 0) throw new SettingsError(problems);
  return tokens;
}

/**
 * Reads a token file: one token a line.
 *
 * @throws SettingsError with each problem of the file.
 */
export async function readTokens(path: string, ifEmpty = 'holds no token') {
  return nameProblems(path, async () => {
    const lines = String(await readFile(path)).split('\n');
    const tokens = checkTokens(
      lines.map((line) => line.trim()),
      'line',
    );
    if (tokens.length === 0) throw new SettingsError([ifEmpty]);
    return tokens;
  });
}

/**
 * Reads the token file beside the log, as {@link readTokens} does. Resolves to `undefined` if it is
 * missing.
 */
export async function readTokensIfPresent(path: string) {
  try {
    return await readTokens(path, 'holds no token; delete it, and the program creates another one');
  } catch (error) {
    if (codeOf((error as Error).cause) === 'ENOENT') return undefined;
    throw error;
  }
}

const { O_CREAT, O_DSYNC, O_EXCL, O_WRONLY } = constants;

/**
 * Creates a token file, mode 0600, with one random token. The file is on the disk once this
 * resolves. Does nothing if the file exists.
 *
 * @throws Error with the path if it cannot be created.
 */
export async function createTokenFile(path: string): Promise<void> {
  const token = randomBytes(TOKEN_BYTES).toString('base64url');
  try {
    const flag = O_WRONLY | O_CREAT | O_EXCL | O_DSYNC;
    await writeFile(path, `${token}\n`, { flag, mode: 0o600 });
    await syncFolder(nodeSystem, dirname(path));
  } catch (cause) {
    if (codeOf(cause) !== 'EEXIST') throw new Error(`${path}: ${reasonOf(cause)}`, { cause });
  }
}

/**
 * Reads a password, without the newline that may end its file.
 *
 * @throws SettingsError if it cannot be read or is empty.
 */
export async function readPassword(path: string): Promise<string> {
  return nameProblems(path, async () => {
    const password = String(await readFile(path)).replace(/\r?\n$/, '');
    if (password === '') throw new SettingsError(['holds no password']);
    return password;
  });
}

/**
 * Reads a certificate, its intermediate certificates, and its private key.
 *
 * @throws SettingsError with the problems of both files, or if the key is not that of the
 * certificate.
 */
export async function readTls(certPath: string, keyPath: string): Promise<TlsMaterial> {
  const problems: string[] = [];
  const cert = await collectProblems(problems, certPath, () =>
    readPem(certPath, 'a certificate', (pem) => createSecureContext({ cert: pem })),
  );
  const key = await collectProblems(problems, keyPath, () =>
    readPem(keyPath, 'a private key', createPrivateKey),
  );
  if (!cert || !key) throw new SettingsError(problems);
  // Node itself notices a wrong key only if its type is that of the right key.
  if (!new X509Certificate(cert).checkPrivateKey(createPrivateKey(key)))
    throw new SettingsError([
      `${keyPath}: is not the private key of the first certificate in ${certPath}`,
    ]);
  return { cert, key };
}

/**
 * Describes until when a certificate is valid, for the operator. An expired certificate is served,
 * too.
 *
 * @example validityOf(tls) // 'valid until 2027-01-31T12:00:00.000Z'
 */
export function validityOf({ cert }: TlsMaterial): string {
  const { validTo } = new X509Certificate(cert);
  /* eslint-disable no-restricted-globals -- The validity of a certificate is in calendar time. */
  const end = new Date(validTo);
  return `${end.getTime() < Date.now() ? 'expired at' : 'valid until'} ${end.toISOString()}`;
  /* eslint-enable no-restricted-globals */
}

/** Reads a PEM file, and checks with `parse` that it holds `what`. */
async function readPem(
  path: string,
  what: string,
  parse: (pem: Buffer) => unknown,
): Promise<Buffer> {
  const pem = await readFile(path);
  try {
    parse(pem);
  } catch (cause) {
    // The message of OpenSSL would be: interrupted or cancelled.
    if (pem.includes('ENCRYPTED')) throw new Error('is encrypted; store it without a pass phrase');
    const { message } = cause as Error;
    throw new Error(`cannot be used as ${what} in PEM (OpenSSL: ${message})`, { cause });
  }
  return pem;
}
