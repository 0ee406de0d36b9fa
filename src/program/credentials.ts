import { randomBytes } from 'node:crypto';
import { link, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { createSecureContext } from 'node:tls';

import { tokenFault } from '../http/auth.js';
import { nodeFileSystem, syncFolder, writeFile } from '../log/file.js';
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
    await writeFile(nodeFileSystem, unfinished, Buffer.from(`${token}\n`))
      // Not rename(), which would replace the other file.
      .then(() => link(unfinished, path))
      .finally(() => rm(unfinished, { force: true }));
    await syncFolder(nodeFileSystem, dirname(path));
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
export async function readTls(files: TlsFiles): Promise<TlsMaterial> {
  const faults: string[] = [];
  const cert = await collect(faults, read(files.cert));
  const key = await collect(faults, read(files.key));
  if (!cert || !key) throw new SettingsError(faults);
  try {
    createSecureContext({ cert, key });
    return { cert, key };
  } catch (cause) {
    const names = `${nameOf(files.cert)} and ${nameOf(files.key)}`;
    const fault = `${names}: are not a certificate and its private key in PEM`;
    throw new SettingsError([fault], { cause });
  }
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
