import { createPrivateKey, randomBytes, X509Certificate } from 'node:crypto';
import { link, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { createSecureContext } from 'node:tls';

import { tokenFault } from '../http/auth.js';
import { nodeSystem, syncFolder, writeFile } from '../log/files.js';
import type { Report } from '../report.js';
import { codeOf, reasonOf } from '../system-error.js';
import { readSecretFile } from './secret-file.js';
import { collect, SettingsError } from './settings-error.js';

/** 256 bits, which cannot be guessed. RFC 6750 prescribes no length. */
const TOKEN_BYTES = 32;

/** A file that the settings name. */
export interface NamedFile {
  readonly path: string;
  /** The setting that names it; `undefined` if it is the default. */
  readonly setting: string | undefined;
}

export interface TlsFiles {
  readonly cert: NamedFile;
  readonly key: NamedFile;
}

/** A certificate, with its intermediate certificates, and its private key, in PEM. */
export interface TlsMaterial {
  readonly cert: Buffer;
  readonly key: Buffer;
}

/** What was read from the files of a certificate and its key. */
export interface Tls extends TlsMaterial {
  readonly files: TlsFiles;
  /** When the certificate expires, in milliseconds since the Unix epoch. */
  readonly notAfter: number;
}

/** A certificate is reported if it expires within this time, in milliseconds. */
export const EXPIRY_WARNING_MS = 14 * 86_400_000;

/**
 * Reads a token file: one token a line.
 *
 * @throws SettingsError with each fault of the file.
 */
export async function readTokens(file: NamedFile): Promise<readonly string[]> {
  const text = String(await read(file));
  const tokens: string[] = [];
  const faults: string[] = [];
  for (const [index, line] of text.split('\n').entries()) {
    const token = line.trim();
    const fault = token === '' ? undefined : tokenFault(token);
    if (fault) faults.push(`${nameOf(file)}: line ${index + 1} ${fault}`);
    else if (token !== '') tokens.push(token);
  }
  if (text.trim() === '') faults.push(`${nameOf(file)}: holds no token`);
  if (faults.length > 0) throw new SettingsError(faults);
  return tokens;
}

/** Like {@link readTokens}, but resolves to an empty array if the file is missing. */
export async function readTokensIfPresent(file: NamedFile): Promise<readonly string[]> {
  try {
    return await readTokens(file);
  } catch (error) {
    if (error instanceof SettingsError && codeOf(error.cause) === 'ENOENT') return [];
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
  const unfinished = `${path}-${randomBytes(8).toString('hex')}.new`;
  try {
    await writeFile(nodeSystem, unfinished, Buffer.from(`${token}\n`))
      // Not rename(), which would replace the other file.
      .then(() => link(unfinished, path))
      .finally(() => rm(unfinished, { force: true }));
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
export async function readPassword(file: NamedFile): Promise<string> {
  const password = String(await read(file)).replace(/\r?\n$/, '');
  if (password === '') throw new SettingsError([`${nameOf(file)}: holds no password`]);
  return password;
}

/**
 * Reads and checks a certificate and its key.
 *
 * @throws SettingsError with the fault of each file, or of the pair.
 */
export async function readTls(files: TlsFiles): Promise<Tls> {
  const faults: string[] = [];
  const cert = await collect(faults, read(files.cert));
  const key = await collect(faults, read(files.key));
  if (!cert || !key) throw new SettingsError(faults);
  try {
    createSecureContext({ cert, key });
    const certificate = new X509Certificate(cert);
    // A context compares only keys of the same type.
    if (!certificate.checkPrivateKey(createPrivateKey(key))) throw new Error('key type mismatch');
    return { cert, key, files, notAfter: Date.parse(certificate.validTo) };
  } catch (cause) {
    const names = `${nameOf(files.cert)} and ${nameOf(files.key)}`;
    const { reason, message } = cause as Error & { readonly reason?: string };
    const fault = `${names}: are not a certificate and its private key in PEM (OpenSSL: ${reason ?? message})`;
    throw new SettingsError([fault], { cause });
  }
}

/** Reports a certificate that has expired, or expires within {@link EXPIRY_WARNING_MS}. */
export function reportExpiry({ files, notAfter }: Tls, report: Report): void {
  const left = notAfter - Date.now();
  if (left > EXPIRY_WARNING_MS) return;
  const expiry = `${left > 0 ? 'expires' : 'expired'} at ${new Date(notAfter).toISOString()}`;
  report(`${nameOf(files.cert)}: the certificate ${expiry}; renew it, then send SIGHUP`);
}

async function read(file: NamedFile): Promise<Buffer> {
  try {
    return await readSecretFile(file.path);
  } catch (cause) {
    throw new SettingsError([`${nameOf(file)}: ${reasonOf(cause)}`], { cause });
  }
}

/** A file as messages name it. */
function nameOf({ setting, path }: NamedFile): string {
  return setting === undefined ? path : `${setting}: ${path}`;
}
