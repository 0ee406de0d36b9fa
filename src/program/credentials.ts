import { createPrivateKey, randomBytes, X509Certificate } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { createSecureContext } from 'node:tls';

import { MAX_TOKENS, tokenFault } from '../http/auth.js';
import { codeOf, reasonOf } from '../system-error.js';
import { SettingsError } from './exit.js';

/** 256 bits, which cannot be guessed. RFC 6750 prescribes no length. */
const TOKEN_BYTES = 32;

/** A file in PEM, which has been read. */
export interface PemFile {
  readonly path: string;
  readonly pem: Buffer;
}

/** A certificate, with its intermediate certificates, and its private key, in PEM. */
export interface TlsMaterial {
  readonly cert: Buffer;
  readonly key: Buffer;
}

/**
 * Returns tokens if all of them are valid. `place` is what their numbers count: `line` or `number`. An empty token
 * is left out.
 *
 * @throws SettingsError with the fault of each token.
 */
export function checkTokens(given: readonly string[], place: string): readonly string[] {
  const tokens = given.filter((token) => token !== '');
  if (tokens.length > MAX_TOKENS)
    throw new SettingsError([`holds ${tokens.length} tokens; at most ${MAX_TOKENS} are allowed`]);
  const faults = given.flatMap((token, index) => {
    const fault = token === '' ? undefined : tokenFault(token);
    return fault === undefined ? [] : `${place} ${index + 1} ${fault}`;
  });
  if (faults.length > 0) throw new SettingsError(faults);
  return tokens;
}

/**
 * Reads a token file: one token a line.
 *
 * @throws SettingsError with each fault of the file.
 */
export async function readTokens(path: string): Promise<readonly string[]> {
  return namingFile(path, async () => {
    const lines = String(await readFile(path)).split('\n');
    const tokens = checkTokens(
      lines.map((line) => line.trim()),
      'line',
    );
    if (tokens.length === 0) throw new SettingsError(['holds no token']);
    return tokens;
  });
}

/** Like {@link readTokens}, but resolves to an empty array if the file is missing. */
export async function readTokensIfPresent(path: string): Promise<readonly string[]> {
  try {
    return await readTokens(path);
  } catch (error) {
    if (codeOf((error as Error).cause) === 'ENOENT') return [];
    throw error;
  }
}

/**
 * Creates a token file, mode 0600, with one random token. Does nothing if another program or the operator
 * has created it by now.
 *
 * @throws Error with the path if it cannot be created.
 */
export async function createTokenFile(path: string): Promise<void> {
  const token = randomBytes(TOKEN_BYTES).toString('base64url');
  try {
    await writeFile(path, `${token}\n`, { flag: 'wx', mode: 0o600 });
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
  return namingFile(path, async () => {
    const password = String(await readFile(path)).replace(/\r?\n$/, '');
    if (password === '') throw new SettingsError(['holds no password']);
    return password;
  });
}

/**
 * Reads a certificate and those that follow it.
 *
 * @throws SettingsError if it cannot be read or used.
 */
export async function readCertificate(path: string): Promise<PemFile> {
  return readPem(path, 'a certificate', (cert) => createSecureContext({ cert }));
}

/**
 * Reads a private key.
 *
 * @throws SettingsError if it cannot be read or used.
 */
export async function readPrivateKey(path: string): Promise<PemFile> {
  return readPem(path, 'a private key', createPrivateKey);
}

/** Returns why a key is not that of a certificate, if so. Node itself compares only keys of the same type. */
export function pairFault(cert: PemFile, key: PemFile): string | undefined {
  return new X509Certificate(cert.pem).checkPrivateKey(createPrivateKey(key.pem))
    ? undefined
    : `${key.path}: is not the private key of the first certificate in ${cert.path}`;
}

/**
 * Reads a certificate and its key again.
 *
 * @throws SettingsError if one of them cannot be read or used, or if they do not belong together.
 */
export async function readTls(cert: string, key: string): Promise<TlsMaterial> {
  const [certFile, keyFile] = [await readCertificate(cert), await readPrivateKey(key)];
  const fault = pairFault(certFile, keyFile);
  if (fault !== undefined) throw new SettingsError([fault]);
  return { cert: certFile.pem, key: keyFile.pem };
}

function readPem(path: string, what: string, use: (pem: Buffer) => unknown): Promise<PemFile> {
  return namingFile(path, async () => {
    const pem = await readFile(path);
    try {
      use(pem);
    } catch (cause) {
      const { message } = cause as Error;
      const fault = `cannot be used as ${what} in PEM (OpenSSL: ${message})`;
      throw new SettingsError([fault], { cause });
    }
    return { path, pem };
  });
}

/** Names a file in the faults of reading it. */
async function namingFile<Result>(path: string, reading: () => Promise<Result>): Promise<Result> {
  try {
    return await reading();
  } catch (cause) {
    const faults = cause instanceof SettingsError ? cause.faults : [reasonOf(cause)];
    throw new SettingsError(
      faults.map((fault) => `${path}: ${fault}`),
      { cause },
    );
  }
}
