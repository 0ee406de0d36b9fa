import { createPrivateKey, generateKeyPairSync } from 'node:crypto';
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import t, { type Test } from 'tap';

import {
  createTokenFile,
  readPassword,
  readTls,
  readTokens,
  readTokensIfPresent,
  reportExpiry,
  type NamedFile,
} from '../../dist/program/credentials.js';
import { SettingsError } from '../../dist/program/settings-error.js';
import { selfSigned } from '../certificate.js';

const UNSENDABLE = 'has characters that a bearer token cannot have (RFC 6750)';

/** A file with the default path. */
const byDefault = (path: string): NamedFile => ({ path, setting: undefined });

/** The faults that a function reports; fails if there are none. */
async function faultsOf(t: Test, reading: Promise<unknown>): Promise<readonly string[]> {
  const error = await reading.catch((error: unknown) => error);
  if (error instanceof SettingsError) return error.faults;
  return [String(t.fail('it rejects with a SettingsError'))];
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
  };
  const path = join(t.testdir(), 'token');
  for (const [what, [content, ...expected]] of Object.entries(contents)) {
    writeFileSync(path, content);
    t.strictSame(await readTokens(byDefault(path)), expected, what);
  }
});

t.test('an invalid token file is refused with the number of the line', async (t) => {
  const contents: Record<string, [content: string, ...faults: string[]]> = {
    'no bytes': ['', 'holds no token'],
    'blank lines only': ['\n \r\n\t\n', 'holds no token'],
    'two words': ['a b\n', `line 1 ${UNSENDABLE}`],
    'a comment': ['a\n# mine\n', `line 2 ${UNSENDABLE}`],
    'a carriage return inside': ['a\rb\n', `line 1 ${UNSENDABLE}`],
    'two of them': ['?\na\n?\n', `line 1 ${UNSENDABLE}`, `line 3 ${UNSENDABLE}`],
  };
  const path = join(t.testdir(), 'token');
  for (const [what, [content, ...expected]] of Object.entries(contents)) {
    writeFileSync(path, content);
    const faults = expected.map((fault) => `${path}: ${fault}`);
    t.strictSame(await faultsOf(t, readTokens(byDefault(path))), faults, what);
  }
});

t.test('a token file that cannot be read is a fault, unless it may be missing', async (t) => {
  const folder = t.testdir({ file: 'a' });
  const faults = {
    none: 'no such file or directory (ENOENT)',
    'file/token': 'not a directory (ENOTDIR)',
    '.': 'it is not a regular file',
  };
  for (const [name, fault] of Object.entries(faults)) {
    const path = join(folder, name);
    t.strictSame(await faultsOf(t, readTokens(byDefault(path))), [`${path}: ${fault}`]);
    const named = { path, setting: 'PLANT_STORE_TOKEN_FILE' };
    const faultOfSetting = [`PLANT_STORE_TOKEN_FILE: ${path}: ${fault}`];
    t.strictSame(await faultsOf(t, readTokens(named)), faultOfSetting);
    const ifPresent = readTokensIfPresent(named);
    if (name === 'none') t.strictSame(await ifPresent, []);
    else t.strictSame(await faultsOf(t, ifPresent), faultOfSetting);
  }
});

t.test('a created token has 256 random bits, and its file has mode 0600', async (t) => {
  const folder = t.testdir();
  const created = new Set<string>();
  for (const name of ['one', 'other']) {
    const path = join(folder, name);
    await createTokenFile(path);
    t.equal(statSync(path).mode & 0o777, 0o600);
    t.match(readFileSync(path, 'utf8'), /^[\w-]{43}\n$/);
    created.add(readFileSync(path, 'utf8'));
  }
  t.equal(created.size, 2);
  t.strictSame(readdirSync(folder), ['one', 'other']);
});

t.test('a token file that another program has created is not replaced', async (t) => {
  const folder = t.testdir();
  const path = join(folder, 'token');
  await Promise.all(Array.from({ length: 10 }, () => createTokenFile(path)));
  const content = readFileSync(path, 'utf8');
  await createTokenFile(path);
  t.equal(readFileSync(path, 'utf8'), content);
  t.strictSame(readdirSync(folder), ['token']);
});

t.test('a token file that cannot be created is reported', async (t) => {
  const path = join(t.testdir(), 'missing/token');
  const message = `${path}: no such file or directory (ENOENT)`;
  await t.rejects(createTokenFile(path), { name: 'Error', message });
});

t.test('a certificate and its private key are read unchanged', async (t) => {
  const { cert, key } = selfSigned();
  const folder = t.testdir({ cert, key, chain: `${cert}\n${selfSigned().cert}` });
  for (const name of ['cert', 'chain']) {
    const files = { cert: byDefault(join(folder, name)), key: byDefault(join(folder, 'key')) };
    t.strictSame(await readTls(files), {
      cert: readFileSync(files.cert.path),
      key: Buffer.from(key),
      files,
      notAfter: Date.parse('2100-01-01T00:00:00Z'),
    });
  }
});

t.test(
  'anything but a certificate and its private key in PEM is refused with a reason',
  async (t) => {
    const own = selfSigned();
    const other = selfSigned();
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const ecKey = privateKey.export({ type: 'pkcs8', format: 'pem' });
    const cipher = { cipher: 'aes-256-cbc', passphrase: 'secret' };
    const encrypted = createPrivateKey(own.key).export({ type: 'pkcs8', format: 'pem', ...cipher });
    const folder = t.testdir({ cert: own.cert, key: own.key });
    const [cert, key] = [join(folder, 'cert'), join(folder, 'key')];
    const misfits = {
      'the key of another': [own.cert, other.key, 'key values mismatch'],
      'a certificate of another': [other.cert, own.key, 'key values mismatch'],
      'a key of another type': [own.cert, ecKey, 'key type mismatch'],
      'an encrypted key': [own.cert, encrypted, 'bad decrypt'],
      'one for the other': [own.key, own.cert, 'no start line'],
      'two certificates': [own.cert, own.cert, 'unsupported'],
      'two keys': [own.key, own.key, 'no start line'],
      'an empty certificate': ['', own.key, 'no start line'],
      'an empty key': [own.cert, '', 'unsupported'],
      'a certificate that is cut off': [own.cert.slice(0, -40), own.key, 'bad end line'],
      'a key that is cut off': [own.cert, own.key.slice(0, -40), 'unsupported'],
      'a certificate in DER': [derOf(own.cert), own.key, 'no start line'],
    } as const;
    for (const [what, [certificate, privateKey, reason]] of Object.entries(misfits)) {
      writeFileSync(cert, certificate);
      writeFileSync(key, privateKey);
      t.strictSame(
        await faultsOf(t, readTls({ cert: byDefault(cert), key: byDefault(key) })),
        [
          `${cert} and ${key}: are not a certificate and its private key in PEM (OpenSSL: ${reason})`,
        ],
        what,
      );
    }
  },
);

function derOf(pem: string): Buffer {
  return Buffer.from(pem.split('\n')[1] ?? '', 'base64');
}

t.test('a certificate is reported if it has expired, or expires within 14 days', async (t) => {
  t.intercept(Date, 'now', { value: () => Date.parse('2030-01-01T00:00:00Z') });
  const files = {
    cert: { path: '/tls/cert', setting: 'PLANT_STORE_TLS_CERT' },
    key: byDefault('/tls/key'),
  };
  const expiries = {
    '2030-01-15T00:00:00.001Z': undefined,
    '2030-01-15T00:00:00.000Z': 'expires',
    '2030-01-01T00:00:00.001Z': 'expires',
    '2030-01-01T00:00:00.000Z': 'expired',
    '2001-01-01T00:00:00.000Z': 'expired',
  };
  for (const [at, verb] of Object.entries(expiries)) {
    const reports: string[] = [];
    const tls = { files, notAfter: Date.parse(at), cert: Buffer.of(), key: Buffer.of() };
    reportExpiry(tls, (message) => reports.push(message));
    const report = `PLANT_STORE_TLS_CERT: /tls/cert: the certificate ${verb} at ${at}; renew it, then send SIGHUP`;
    t.strictSame(reports, verb ? [report] : [], at);
  }
});

t.test('each TLS file that cannot be read is a fault', async (t) => {
  const folder = t.testdir(selfSigned());
  const file = (name: string): NamedFile => byDefault(join(folder, name));
  const noCert = `${file('none').path}: no such file or directory (ENOENT)`;
  const noKey = `${file('.').path}: it is not a regular file`;
  const pairs = [
    ['none', '.', [noCert, noKey]],
    ['none', 'key', [noCert]],
    ['cert', '.', [noKey]],
  ] as const;
  for (const [cert, key, faults] of pairs)
    t.strictSame(await faultsOf(t, readTls({ cert: file(cert), key: file(key) })), faults);
});

t.test('a password is all of its file but a newline at the end', async (t) => {
  const folder = t.testdir({ empty: '\n' });
  const path = join(folder, 'password');
  for (const end of ['', '\n', '\r\n']) {
    writeFileSync(path, ` p\nw ${end}`);
    t.equal(await readPassword(byDefault(path)), ' p\nw ', JSON.stringify(end));
  }
  const faults = { empty: 'holds no password', none: 'no such file or directory (ENOENT)' };
  for (const [name, fault] of Object.entries(faults))
    t.strictSame(await faultsOf(t, readPassword(byDefault(join(folder, name)))), [
      `${join(folder, name)}: ${fault}`,
    ]);
});
