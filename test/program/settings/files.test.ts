import { createPrivateKey, generateKeyPairSync } from 'node:crypto';
import { readdirSync, readFileSync, readlinkSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { MAX_TOKENS } from '../../../dist/http/limits.js';
import { nodeSystem } from '../../../dist/log/system.js';
import {
  createTokenFile,
  readPassword,
  readTls,
  readTokens,
  readTokensIfPresent,
} from '../../../dist/program/settings/files.js';
import { selfSigned } from '../../helpers/certificate.js';
import { problemsOf } from '../../helpers/program.js';

const UNSENDABLE = 'has characters that a bearer token cannot have (RFC 6750)';

t.test('a token file has one token a line', async (t) => {
  const contents: Record<string, readonly [content: string, ...tokens: string[]]> = {
    'no newline at the end': ['a', 'a'],
    'lines that end as on Windows': ['a\r\nb\r\n', 'a', 'b'],
    'blank lines': ['\n\na\n \t\n\r\nb\n\n', 'a', 'b'],
    'white space around': [' a \n\tb\t\n', 'a', 'b'],
    'a byte order mark': ['\ufeffa\n', 'a'],
    'the most tokens': ['a\n\n'.repeat(MAX_TOKENS), ...Array<string>(MAX_TOKENS).fill('a')],
  };
  const path = join(t.testdir(), 'token');
  for (const [what, [content, ...tokens]] of Object.entries(contents)) {
    writeFileSync(path, content);
    t.strictSame(await readTokens(path), tokens, what);
  }
});

t.test('an invalid token file is refused with the number of the line', async (t) => {
  const contents: Record<string, readonly [content: string, ...problems: string[]]> = {
    'blank lines only': ['\n \r\n\t\n', 'holds no token'],
    'two words': ['a b\n', `line 1 ${UNSENDABLE}`],
    'two of them': ['?\na\n?\n', `line 1 ${UNSENDABLE}`, `line 3 ${UNSENDABLE}`],
    'too many tokens': [
      'a\n'.repeat(MAX_TOKENS + 1),
      `holds ${MAX_TOKENS + 1} tokens; at most ${MAX_TOKENS} are allowed`,
    ],
  };
  const path = join(t.testdir(), 'token');
  for (const [what, [content, ...problems]] of Object.entries(contents)) {
    writeFileSync(path, content);
    const named = problems.map((problem) => `${path}: ${problem}`);
    t.strictSame(await problemsOf(readTokens(path)), named, what);
  }
});

t.test('a file that cannot be read is a problem, unless it may be missing', async (t) => {
  const folder = t.testdir({ file: 'a', link: t.fixture('symlink', 'none') });
  const problems = {
    link: 'no such file or directory (ENOENT)',
    none: 'no such file or directory (ENOENT)',
    'file/token': 'not a directory (ENOTDIR)',
    '.': 'illegal operation on a directory (EISDIR)',
  };
  for (const [name, problem] of Object.entries(problems)) {
    const path = join(folder, name);
    for (const read of [readTokens, readTokensIfPresent, readPassword])
      t.strictSame(
        await problemsOf(read(path)),
        read === readTokensIfPresent && /none|link/.test(name) ? [] : [`${path}: ${problem}`],
        `${read.name}: ${name}`,
      );
    const both = [`${path}: ${problem}`, `${path}: ${problem}`];
    t.strictSame(await problemsOf(readTls(path, path)), both, `certificate and key: ${name}`);
  }
  t.equal(await readTokensIfPresent(join(folder, 'none')), undefined);
  writeFileSync(join(folder, 'empty'), '');
  const problem = 'holds no token; delete it, and the program creates another one';
  t.strictSame(await problemsOf(readTokensIfPresent(join(folder, 'empty'))), [
    `${join(folder, 'empty')}: ${problem}`,
  ]);
});

t.test('a created token has 256 random bits, and no file is replaced', async (t) => {
  const folder = t.testdir({ link: t.fixture('symlink', 'none') });
  const link = join(folder, 'link');
  const created = new Set<string>();
  const synced = new Set<string>();
  t.capture(nodeSystem, 'fsync', async (descriptor: number) => {
    synced.add(readlinkSync(`/proc/self/fd/${descriptor}`));
  });
  for (const name of ['one', 'other']) {
    const path = join(folder, name);
    await Promise.all(Array.from({ length: 10 }, () => createTokenFile(path)));
    const content = readFileSync(path, 'utf8');
    t.match(content, /^[\w-]{43}\n$/);
    t.equal(statSync(path).mode & 0o777, 0o600);
    await createTokenFile(path);
    t.equal(readFileSync(path, 'utf8'), content);
    created.add(content);
  }
  await createTokenFile(link);
  t.equal(created.size, 2);
  t.strictSame([...synced], [folder], 'the entry in the folder is durable, too');
  t.strictSame(readdirSync(folder), ['link', 'one', 'other']);
});

t.test('a token file that cannot be created is reported', async (t) => {
  const path = join(t.testdir(), 'missing/token');
  const message = `${path}: no such file or directory (ENOENT)`;
  await t.rejects(createTokenFile(path), { name: 'Error', message });
});

t.test('a certificate and its private key are read unchanged', async (t) => {
  const { cert, key } = selfSigned();
  const folder = t.testdir({ cert, key, chain: `${cert}\n${selfSigned().cert}` });
  for (const name of ['cert', 'chain'])
    t.strictSame(await readTls(join(folder, name), join(folder, 'key')), {
      cert: readFileSync(join(folder, name)),
      key: Buffer.from(key),
    });
});

t.test('a file that is no certificate or key is named, with what OpenSSL says', async (t) => {
  const own = selfSigned();
  const cipher = { cipher: 'aes-256-cbc', passphrase: 'secret' };
  const encrypted = createPrivateKey(own.key).export({ type: 'pkcs8', format: 'pem', ...cipher });
  const folder = t.testdir({ cert: own.cert, key: own.key });
  const path = join(folder, 'file');
  const readCertificate = () => readTls(path, join(folder, 'key'));
  const readPrivateKey = () => readTls(join(folder, 'cert'), path);
  const misfits = [
    ['a key', readCertificate, own.key, 'no start line'],
    ['a certificate that is cut off', readCertificate, own.cert.slice(0, -40), 'bad end line'],
    ['a certificate', readPrivateKey, own.cert, /\w+/],
    ['a key that is cut off', readPrivateKey, own.key.slice(0, -40), /\w+/],
  ] as const;
  for (const [what, read, content, reason] of misfits) {
    writeFileSync(path, content);
    const kind = read === readCertificate ? 'certificate' : 'private key';
    const [problem = '', ...more] = await problemsOf(read());
    const start = `${path}: cannot be used as a ${kind} in PEM (OpenSSL: `;
    t.ok(problem.startsWith(start), problem);
    t.match(problem.slice(start.length), reason, what);
    t.strictSame(more, []);
  }
  writeFileSync(path, encrypted);
  const problem = 'is encrypted; store it without a pass phrase';
  t.strictSame(await problemsOf(readPrivateKey()), [`${path}: ${problem}`]);
});

t.test('a key of any type that does not belong to the certificate is named', async (t) => {
  const own = selfSigned();
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const ec = String(privateKey.export({ type: 'pkcs8', format: 'pem' }));
  const folder = t.testdir({ cert: own.cert, other: selfSigned().key, ec });
  const cert = join(folder, 'cert');
  for (const name of ['other', 'ec']) {
    const key = join(folder, name);
    const problem = `${key}: is not the private key of the first certificate in ${cert}`;
    t.strictSame(await problemsOf(readTls(cert, key)), [problem]);
  }
});

t.test('a password is all of its file but a newline at the end', async (t) => {
  const path = join(t.testdir(), 'password');
  for (const end of ['', '\n', '\r\n']) {
    writeFileSync(path, ` p\nw ${end}`);
    t.equal(await readPassword(path), ' p\nw ', JSON.stringify(end));
  }
  writeFileSync(path, '\n');
  t.strictSame(await problemsOf(readPassword(path)), [`${path}: holds no password`]);
});
