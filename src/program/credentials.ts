import { randomBytes } from 'node:crypto';
import { link, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { createSecureContext } from 'node:tls';

import { tokenFault } from '../http/auth.js';
import { nodeFileSystem, syncFolder, writeFile } from '../log/file.js';
import { codeOf, reasonOf } from '../system-error.js';
import { readSecretFile } from './secret-file.js';
import type { TlsFiles, TokenFile } from './settings.js';

/** 256 bits, which cannot be guessed. RFC 6750 prescribes no length. */
const TOKEN_BYTES = 32;

/**
 * Reads a token file: one token a line. Resolves to an empty array if the file is missing and is to
 * be created. Adds a message to `faults` for each fault.
 */
export async function readTokens(
  { path, createIfMissing }: TokenFile,
  faults: string[],
): Promise<readonly string[]> {
  let text: string;
  try {
    text = String(await readSecretFile(path));
  } catch (error) {
    if (!(createIfMissing && codeOf(error) === 'ENOENT'))
      faults.push(`${path}: ${reasonOf(error)}`);
    return [];
  }
  const tokens: string[] = [];
  for (const [index, line] of text.split('\n').entries()) {
    const token = line.trim();
    const fault = token === '' ? undefined : tokenFault(token);
    if (fault) faults.push(`${path}: line ${index + 1} ${fault}`);
    else if (token !== '') tokens.push(token);
  }
  if (text.trim() === '') faults.push(`${path}: holds no token`);
  return tokens;
}

/**
 * Creates a token file, mode 0600, with one random token. Does nothing if there is a file by now, of
 * another program or of the operator.
 *
 * @throws Error with the path if it cannot be created.
 */
export async function createTokenFile({ path }: TokenFile): Promise<void> {
  const token = randomBytes(TOKEN_BYTES).toString('base64url');
  const unfinished = `${path}-${randomBytes(8).toString('hex')}.new`;
  try {
    await writeFile(nodeFileSystem, unfinished, Buffer.from(`${token}\n`))
      // Not rename(), which would replace the other file.
      .then(() => link(unfinished, path))
      .finally(() => rm(unfinished, { force: true }));
    await syncFolder(nodeFileSystem, dirname(path));
  } catch (error) {
    if (codeOf(error) !== 'EEXIST')
      throw new Error(`${path}: ${reasonOf(error)}`, { cause: error });
  }
}

/** @throws Error with the path if a password cannot be read. */
export async function readPassword(path: string): Promise<string> {
  const text = await readSecretFile(path).catch((cause: unknown) => {
    throw new Error(`${path}: ${reasonOf(cause)}`, { cause });
  });
  const password = String(text).replace(/\r?\n$/, '');
  if (password === '') throw new Error(`${path}: holds no password`);
  return password;
}

/** A certificate, with its intermediate certificates, and its private key, in PEM. */
export interface TlsMaterial {
  readonly cert: Buffer;
  readonly key: Buffer;
}

/** Reads and checks a certificate and its key. Adds a message to `faults` for each fault. */
export async function readTls(files: TlsFiles, faults: string[]): Promise<TlsMaterial | undefined> {
  const before = faults.length;
  const read = async (path: string): Promise<Buffer> => {
    try {
      return await readSecretFile(path);
    } catch (error) {
      faults.push(`${path}: ${reasonOf(error)}`);
      return Buffer.alloc(0);
    }
  };
  const material = { cert: await read(files.cert), key: await read(files.key) };
  if (faults.length > before) return undefined;
  try {
    createSecureContext(material);
    return material;
  } catch {
    faults.push(`${files.cert} and ${files.key}: are not a certificate and its private key in PEM`);
    return undefined;
  }
}
