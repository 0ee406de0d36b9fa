import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import t, { type Test } from 'tap';

import {
  createTokenFile,
  readPassword,
  readTls,
  readTokens,
} from '../../dist/program/credentials.js';
import { selfSigned } from '../support.js';

const UNSENDABLE = 'has characters that a bearer token cannot have (RFC 6750)';

/** Reads a token file with this content. */
async function tokensIn(
  t: Test,
  content: string,
): Promise<{ tokens: readonly string[]; faults: string[]; path: string }> {
  const path = join(t.testdir({ token: content }), 'token');
  const faults: string[] = [];
  const tokens = await readTokens({ path, createIfMissing: true }, faults);
  return { tokens, faults, path };
}

t.test('a token file has one token a line', async (t) => {
  const contents: Record<string, [content: string, ...tokens: string[]]> = {
    'one line': ['a\n', 'a'],
    'no newline at the end': ['a', 'a'],
    'several lines': ['a\nb\nc\n', 'a', 'b', 'c'],
    'lines that end as on Windows': ['a\r\nb\r\n', 'a', 'b'],
    'blank lines': ['\n\na\n \t\n\r\nb\n\n', 'a', 'b'],
    'white space around': [' a \n\tb\t\n', 'a', 'b'],
    'a byte order mark': ['\ufeffa\n', 'a'],
    'the same twice': ['a\na\n', 'a', 'a'],
    'all characters of a token': ['09AZaz-._~+/==\n', '09AZaz-._~+/=='],
    'the longest token': [`${'x'.repeat(511)}\n`, 'x'.repeat(511)],
  };
  for (const [what, [content, ...expected]] of Object.entries(contents)) {
    const { tokens, faults } = await tokensIn(t, content);
    t.strictSame({ tokens, faults }, { tokens: expected, faults: [] }, what);
  }
});

t.test('an invalid token file is refused with the number of the line', async (t) => {
  const contents: Record<string, [content: string, ...faults: string[]]> = {
    'no bytes': ['', 'holds no token'],
    'blank lines only': ['\n \r\n\t\n', 'holds no token'],
    'two words': ['a b\n', `line 1 ${UNSENDABLE}`],
    'a comment': ['a\n# mine\n', `line 2 ${UNSENDABLE}`],
    'an umlaut': ['\nä\n', `line 2 ${UNSENDABLE}`],
    'a NUL': ['a\0\n', `line 1 ${UNSENDABLE}`],
    'a carriage return inside': ['a\rb\n', `line 1 ${UNSENDABLE}`],
    'a token that is too long': [`${'x'.repeat(512)}\n`, 'line 1 is longer than 511 characters'],
    'two of them': ['?\na\n?\n', `line 1 ${UNSENDABLE}`, `line 3 ${UNSENDABLE}`],
  };
  for (const [what, [content, ...expected]] of Object.entries(contents)) {
    const { faults, path } = await tokensIn(t, content);
    t.strictSame(
      faults,
      expected.map((fault) => `${path}: ${fault}`),
      what,
    );
  }
});

t.test('a token file may be missing only if it is to be created', async (t) => {
  const path = join(t.testdir(), 'token');
  const faults: string[] = [];
  t.strictSame(await readTokens({ path, createIfMissing: true }, faults), []);
  t.strictSame(faults, []);
  t.strictSame(await readTokens({ path, createIfMissing: false }, faults), []);
  t.strictSame(faults, [`${path}: no such file or directory (ENOENT)`]);
});

t.test('a token file that cannot be read is a fault, even if it may be missing', async (t) => {
  const folder = t.testdir({ file: 'a' });
  for (const createIfMissing of [true, false]) {
    const faults: string[] = [];
    await readTokens({ path: folder, createIfMissing }, faults);
    await readTokens({ path: join(folder, 'file/token'), createIfMissing }, faults);
    t.strictSame(faults, [
      `${folder}: it is not a regular file`,
      `${folder}/file/token: not a directory (ENOTDIR)`,
    ]);
  }
});

t.test('a created token has 256 random bits, and its file has mode 0600', async (t) => {
  const folder = t.testdir();
  const made: string[] = [];
  for (const name of ['one', 'other']) {
    const file = { path: join(folder, name), createIfMissing: true };
    await createTokenFile(file);
    t.match(readFileSync(file.path, 'utf8'), /^[\w-]{43}\n$/);
    t.equal(statSync(file.path).mode & 0o777, 0o600);
    const faults: string[] = [];
    made.push(...(await readTokens(file, faults)));
    t.strictSame(faults, [], 'it can be read back');
  }
  t.equal(new Set(made).size, 2);
  t.strictSame(readdirSync(folder), ['one', 'other']);
});

t.test('a token file that another program has created is not replaced', async (t) => {
  const folder = t.testdir();
  const file = { path: join(folder, 'token'), createIfMissing: true };
  await Promise.all(Array.from({ length: 10 }, () => createTokenFile(file)));
  const content = readFileSync(file.path, 'utf8');
  await createTokenFile(file);
  t.equal(readFileSync(file.path, 'utf8'), content);
  t.strictSame(readdirSync(folder), ['token']);
});

t.test('a token file that cannot be created is reported', async (t) => {
  const path = join(t.testdir(), 'missing/token');
  const message = `${path}: no such file or directory (ENOENT)`;
  await t.rejects(createTokenFile({ path, createIfMissing: true }), { name: 'Error', message });
});

t.test('a certificate and its private key are read unchanged', async (t) => {
  const { cert, key } = selfSigned();
  const folder = t.testdir({ cert, key, chain: `${cert}\n${selfSigned().cert}` });
  for (const name of ['cert', 'chain']) {
    const faults: string[] = [];
    const files = { cert: join(folder, name), key: join(folder, 'key') };
    t.strictSame(await readTls(files, faults), {
      cert: readFileSync(files.cert),
      key: Buffer.from(key),
    });
    t.strictSame(faults, []);
  }
});

t.test('anything but a certificate and its private key in PEM is refused', async (t) => {
  const own = selfSigned();
  const other = selfSigned();
  const folder = t.testdir({ cert: own.cert, key: own.key });
  const [cert, key] = [join(folder, 'cert'), join(folder, 'key')];
  const misfits = {
    'the key of another': [own.cert, other.key],
    'a certificate of another': [other.cert, own.key],
    'one for the other': [own.key, own.cert],
    'two certificates': [own.cert, own.cert],
    'two keys': [own.key, own.key],
    'an empty certificate': ['', own.key],
    'an empty key': [own.cert, ''],
    'a certificate that is cut off': [own.cert.slice(0, -40), own.key],
    'a key that is cut off': [own.cert, own.key.slice(0, -40)],
    'a certificate in DER': [Buffer.from(own.cert.split('\n')[1] ?? '', 'base64'), own.key],
  } as const;
  for (const [what, contents] of Object.entries(misfits)) {
    writeFileSync(cert, contents[0]);
    writeFileSync(key, contents[1]);
    const faults: string[] = [];
    t.equal(await readTls({ cert, key }, faults), undefined, what);
    t.strictSame(
      faults,
      [`${cert} and ${key}: are not a certificate and its private key in PEM`],
      what,
    );
  }
});

t.test('each TLS file that cannot be read is a fault', async (t) => {
  const folder = t.testdir();
  const files = { cert: join(folder, 'cert'), key: folder };
  const faults = ['a fault of something else'];
  t.equal(await readTls(files, faults), undefined);
  t.strictSame(faults.slice(1), [
    `${files.cert}: no such file or directory (ENOENT)`,
    `${files.key}: it is not a regular file`,
  ]);
});

t.test('a password is all of its file but a newline at the end', async (t) => {
  for (const end of ['', '\n', '\r\n']) {
    const path = join(t.testdir({ password: ` p\nw ${end}` }), 'password');
    t.equal(await readPassword(path), ' p\nw ', JSON.stringify(end));
  }
  const folder = t.testdir({ empty: '\n' });
  await t.rejects(readPassword(`${folder}/empty`), {
    message: `${folder}/empty: holds no password`,
  });
  const missing = `${folder}/none: no such file or directory (ENOENT)`;
  await t.rejects(readPassword(`${folder}/none`), { message: missing });
});
