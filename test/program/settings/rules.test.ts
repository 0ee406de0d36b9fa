import { resolve } from 'node:path';

import t from 'tap';

import { DEFAULT_LIMITS, MAX_LIMITS } from '../../../dist/http/limits.js';
import {
  readLogPath,
  readStoreSettings,
  type Environment,
} from '../../../dist/program/settings/read.js';
import { readServerSettings, type ServerSettings } from '../../../dist/program/settings/rules.js';
import { NEEDS, SETTING_NAMES, type Settings } from '../../../dist/program/settings/table.js';
import { selfSigned } from '../../helpers/certificate.js';
import { exactly } from '../../helpers/exactly.js';
import { problemsOf } from '../../helpers/program.js';

/** All settings that are read: those of the table, and those that are derived from them. */
type AllSettings = Settings & ServerSettings;

const problemsIn = (environment: Environment): Promise<readonly string[]> =>
  problemsOf(readServerSettings(environment));

/** The files in the working directory, where relative paths start. */
const { cert, key } = selfSigned();
const other = selfSigned();
const folderBefore = process.cwd();
const files = { secret: 'a\nb\n', 'a.pem': cert, 'b.pem': key, 'c.pem': other.key, log: {} };
process.chdir(t.testdir(files));
t.teardown(() => process.chdir(folderBefore));

t.test('an empty environment is valid', async (t) => {
  t.strictSame(await readServerSettings({}), {
    PLANT_STORE_HOST: '127.0.0.1',
    PLANT_STORE_PORT: 8080,
    PLANT_STORE_FILE: resolve('data/plants.jsonl'),
    PLANT_STORE_DATABASE_CONNECTIONS: 2,
    PLANT_STORE_MAX_BODY: DEFAULT_LIMITS.maxBodyBytes,
    PLANT_STORE_MAX_BUFFERED: DEFAULT_LIMITS.maxBufferedBytes,
    PLANT_STORE_MAX_CONNECTIONS: 10_000,
    PLANT_STORE_MONITOR_HOST: '127.0.0.1',
    PLANT_STORE_KEEP_ALIVE_SECONDS: 75,
    address: { host: '127.0.0.1', port: 8080 },
    tls: undefined,
    tokenSource: { kind: 'new file', path: resolve('data/token') },
  });
});

const DATABASE_ALONE = { PLANT_STORE_DATABASE_URL: 'postgres://plants@db/plants' };
const DATABASE = { ...DATABASE_ALONE, PLANT_STORE_TOKEN: 'a' };
const { maxBodyBytes, maxBufferedBytes } = MAX_LIMITS;
const integers: Record<string, readonly [min: number, max: number, others?: Environment]> = {
  PLANT_STORE_PORT: [0, 65_535],
  PLANT_STORE_DATABASE_CONNECTIONS: [1, 1_000, DATABASE],
  PLANT_STORE_MAX_BODY: [1, maxBodyBytes, { PLANT_STORE_MAX_BUFFERED: String(maxBufferedBytes) }],
  PLANT_STORE_MAX_BUFFERED: [1, maxBufferedBytes, { PLANT_STORE_MAX_BODY: '1' }],
  PLANT_STORE_MAX_CONNECTIONS: [1, 1_000_000],
  PLANT_STORE_MONITOR_PORT: [0, 65_535],
  PLANT_STORE_KEEP_ALIVE_SECONDS: [1, 86_400],
};

t.test('an integer must be in its range, and have digits only', async (t) => {
  for (const [name, [min, max, others]] of Object.entries(integers)) {
    for (const text of [`${max}`, `00${max}`]) {
      const settings = await readServerSettings({ ...others, [name]: text });
      t.equal(
        (settings as AllSettings)[name as 'PLANT_STORE_PORT'],
        Number(text),
        `${name}=${text}`,
      );
    }
    const problem = `${name}: must be an integer between ${min} and ${max}`;
    for (const text of [`${min - 1}`, `${max + 1}`, `+${max}`, `${max}.0`, '1e3', '0x10'])
      t.strictSame(await problemsIn({ ...others, [name]: text }), [problem], `${name}=${text}`);
  }
});

const withTokens = (...tokens: readonly string[]): Partial<AllSettings> => ({
  PLANT_STORE_TOKEN: tokens,
  tokenSource: { kind: 'variable', tokens },
});
const logAt = (file: string): Partial<AllSettings> => ({
  PLANT_STORE_FILE: resolve(file),
  tokenSource: { kind: 'new file', path: resolve(file, '../token') },
});

const accepted: Record<string, readonly [Environment, Partial<AllSettings>]> = {
  'a relative path': [{ PLANT_STORE_FILE: 'log/of plants' }, logAt('log/of plants')],
  'a path that begins with ~ after a folder': [{ PLANT_STORE_FILE: './~log' }, logAt('~log')],
  'a token file': [
    { PLANT_STORE_TOKEN_FILE: 'secret' },
    {
      PLANT_STORE_TOKEN_FILE: { path: resolve('secret'), tokens: ['a', 'b'] },
      tokenSource: { kind: 'file', path: resolve('secret'), tokens: ['a', 'b'] },
    },
  ],
  'tokens with white space around': [{ PLANT_STORE_TOKEN: ' a\t\r\nb ' }, withTokens('a', 'b')],
  'a certificate and its key': [
    { PLANT_STORE_TLS_CERT: 'a.pem', PLANT_STORE_TLS_KEY: resolve('b.pem') },
    {
      PLANT_STORE_TLS_CERT: resolve('a.pem'),
      PLANT_STORE_TLS_KEY: resolve('b.pem'),
      tls: { cert: Buffer.from(cert), key: Buffer.from(key) },
    },
  ],
  'a socket from systemd': [
    { LISTEN_PID: String(process.pid), LISTEN_FDS: '1', PLANT_STORE_MONITOR_PORT: '8080' },
    { address: { fd: 3 }, PLANT_STORE_MONITOR_PORT: 8080 },
  ],
  'a socket of another process, which has no effect': [{ LISTEN_PID: '1', LISTEN_FDS: '2' }, {}],
  'variables of other programs': [{ PORT: 'x', PLANT_STORE: 'x', plant_store_port: 'x' }, {}],
};

t.test('an accepted setting changes no other setting', async (t) => {
  const defaults = await readServerSettings({});
  for (const [what, [environment, expected]] of Object.entries(accepted))
    t.strictSame(await readServerSettings(environment), { ...defaults, ...expected }, what);
});

const INHERITED = { LISTEN_PID: String(process.pid), LISTEN_FDS: '1' };
const refused: Record<string, readonly [environment: Environment, ...problems: string[]]> = {
  'the key of another certificate': [
    { PLANT_STORE_TLS_CERT: 'a.pem', PLANT_STORE_TLS_KEY: 'c.pem' },
    `PLANT_STORE_TLS_CERT and PLANT_STORE_TLS_KEY: ${resolve('c.pem')}: is not the private key of the first certificate in ${resolve('a.pem')}`,
  ],
  'a token that no request could carry': [
    { PLANT_STORE_TOKEN: 'good bäd' },
    'PLANT_STORE_TOKEN: number 2 has characters that a bearer token cannot have (RFC 6750)',
  ],
  'a pasted header in place of a token': [
    { PLANT_STORE_TOKEN: 'Bearer a-token' },
    'PLANT_STORE_TOKEN: number 1 is the word Bearer, which is no part of a token',
  ],
  'tokens and a token file': [
    { PLANT_STORE_TOKEN: 'a', PLANT_STORE_TOKEN_FILE: 'secret' },
    'PLANT_STORE_TOKEN and PLANT_STORE_TOKEN_FILE: must not be set together',
  ],
  'the path of the default in a folder that does not exist': [
    { PLANT_STORE_FILE: 'data/plants.jsonl' },
    `PLANT_STORE_FILE: the folder ${resolve('data')} must exist: no such file or directory (ENOENT)`,
  ],
  'a log in a file': [
    { PLANT_STORE_FILE: 'secret/log' },
    `PLANT_STORE_FILE: the folder ${resolve('secret')} must exist: not a directory (ENOTDIR)`,
  ],
  'a log and a database': [
    { ...DATABASE, PLANT_STORE_FILE: 'log' },
    'PLANT_STORE_FILE and PLANT_STORE_DATABASE_URL: must not be set together',
  ],
  'a database without a token': [
    DATABASE_ALONE,
    'PLANT_STORE_TOKEN or PLANT_STORE_TOKEN_FILE: must be set, because a database has no folder for a token file',
  ],
  'an address beside an inherited socket': [
    { ...INHERITED, PLANT_STORE_HOST: '::1', PLANT_STORE_PORT: '80' },
    'PLANT_STORE_HOST: must not be set, because a socket is inherited (LISTEN_PID)',
    'PLANT_STORE_PORT: must not be set, because a socket is inherited (LISTEN_PID)',
  ],
  'two inherited sockets': [{ ...INHERITED, LISTEN_FDS: '2' }, 'LISTEN_FDS: must be 1'],
  'no number of inherited sockets': [{ ...INHERITED, LISTEN_FDS: '' }, 'LISTEN_FDS: must be 1'],
  'what an env file has kept, with the character': [
    { PLANT_STORE_HOST: 'a\r', PLANT_STORE_FILE: '"a"', PLANT_STORE_TOKEN: ` 'a' ` },
    'PLANT_STORE_HOST: must not begin or end with "\\r", which an env file keeps',
    'PLANT_STORE_FILE: must not begin or end with "\\"", which an env file keeps',
    'PLANT_STORE_TOKEN: must not begin or end with "\'", which an env file keeps',
  ],
  'less memory for all requests than for eight bodies': [
    { PLANT_STORE_MAX_BODY: '9999', PLANT_STORE_MAX_BUFFERED: '79991' },
    'PLANT_STORE_MAX_BUFFERED: must be at least eight times PLANT_STORE_MAX_BODY',
  ],
};

t.test('each refused environment is reported with all of its problems', async (t) => {
  for (const [what, [environment, ...problems]] of Object.entries(refused))
    t.strictSame(await problemsIn(environment), problems, what);
});

t.test('a setting that has no effect without another one is refused without it', async (t) => {
  const given: Readonly<Record<string, string>> = {
    PLANT_STORE_DATABASE_PASSWORD_FILE: 'secret',
    PLANT_STORE_DATABASE_CONNECTIONS: '2',
    PLANT_STORE_TLS_CERT: 'a.pem',
    PLANT_STORE_TLS_KEY: 'b.pem',
    PLANT_STORE_MONITOR_HOST: '127.0.0.1',
  };
  t.strictSame(Object.keys(NEEDS), Object.keys(given));
  for (const [name, needed] of Object.entries(NEEDS))
    t.strictSame(await problemsIn({ [name]: given[name] }), [`${name}: needs ${needed}`]);
});

const FILES = SETTING_NAMES.filter((name) => /_(?:FILE|CERT|KEY)$/.test(name));
const PEM = '-----BEGIN PRIVATE KEY-----\nS3cret\n-----END PRIVATE KEY-----';

t.test('a path that only a shell or a URL parser would understand is refused', async (t) => {
  const unclear = 'must not begin with ~ or file:, or end with /';
  const values: Record<string, string> = {
    ...{ '~/a': unclear, 'file:///a': unclear, 'FILE:a': unclear, 'a/': unclear },
    'secret # mine': 'must not end with a comment, which an env file keeps',
    [PEM]: 'must be a path, without control characters',
  };
  for (const name of FILES)
    for (const [value, problem] of Object.entries(values)) {
      const problems = await problemsIn({ ...DATABASE, [name]: value });
      t.ok(problems.includes(`${name}: ${problem}`), `${name}=${value}: ${problems.join()}`);
    }
});

t.test('the commands on a log read only its path', async (t) => {
  t.equal(
    await readLogPath({ PLANT_STORE_FILE: 'log/a', PLANT_STORE_PORT: 'x' }),
    resolve('log/a'),
  );
  t.strictSame(await problemsOf(readLogPath({ ...DATABASE, PLANT_STORE_FILE: '~/log' })), [
    'PLANT_STORE_FILE: must not begin with ~ or file:, or end with /',
    'PLANT_STORE_DATABASE_URL: is set, so the command has to name its log',
  ]);
});

t.test('an import reads only the settings of the store', async (t) => {
  const others = { PLANT_STORE_PORT: 'x', PLANT_STORE_TOKEN: undefined };
  t.match(await readStoreSettings(others), { PLANT_STORE_FILE: resolve('data/plants.jsonl') });
  const environment = { ...DATABASE, PLANT_STORE_DATABASE_PASSWORD_FILE: 'secret', ...others };
  const { PLANT_STORE_DATABASE_PASSWORD_FILE: password, ...settings } =
    await readStoreSettings(environment);
  t.match(settings, { ...DATABASE_ALONE, PLANT_STORE_DATABASE_CONNECTIONS: 2 });
  t.equal(await password?.(), 'a\nb');
  const faulty = { PLANT_STORE_FILE: '', PLANT_STORE_DATABASE_URL: 'http://a:S3cret@db/plants' };
  t.strictSame(await problemsOf(readStoreSettings(faulty)), [
    'PLANT_STORE_FILE: must not be empty; leave it out instead',
    'PLANT_STORE_DATABASE_URL: the URL must be postgres://user[:password]@host[:port][,…]/database, user and password percent-encoded',
    'PLANT_STORE_FILE and PLANT_STORE_DATABASE_URL: must not be set together',
  ]);
});

t.test('all problems are reported together, in the order of the table', async (t) => {
  const environment = Object.fromEntries(SETTING_NAMES.map((name) => [name, ' ']));
  t.strictSame(
    (await problemsIn(environment)).filter((problem) => problem.includes('empty')),
    SETTING_NAMES.map((name) => `${name}: must not be empty; leave it out instead`),
  );
});

t.test('no problem repeats a value, which may be a secret in the wrong variable', async (t) => {
  const problems: string[] = [];
  for (const name of SETTING_NAMES)
    // A setting that is a path may be repeated: a message names the file that cannot be read.
    for (const secret of FILES.includes(name) ? [PEM] : [PEM, 'S3cret-ä'])
      problems.push(...(await problemsIn({ ...DATABASE, [name]: secret })));
  t.ok(problems.length > SETTING_NAMES.length);
  t.strictSame(
    problems.filter((problem) => problem.includes('S3cret')),
    [],
  );
});

t.test('an unknown setting is a problem that names the nearest settings', async (t) => {
  const nearest = { DATABASE_URI: 'DATABASE_URL', CERT: 'TLS_CERT' };
  for (const [name, setting] of Object.entries(nearest)) {
    const problem = `PLANT_STORE_${name}: no such setting; the nearest ones are .*PLANT_STORE_${setting}`;
    for (const reading of [readServerSettings, readStoreSettings, readLogPath]) {
      const problems = await problemsOf(reading({ [`PLANT_STORE_${name}`]: '1' }));
      t.match(problems, exactly(RegExp(`^${problem}(?:,|$)`)));
    }
  }
});

t.test('variables of a Service of Kubernetes are problems; one names the cure', async (t) => {
  const links = { PLANT_STORE_SERVICE_HOST: '10.0.0.1', PLANT_STORE_SERVICE_PORT: '8080' };
  t.match(
    await problemsIn(links),
    exactly(
      /^PLANT_STORE_SERVICE_HOST: .+; in Kubernetes, set enableServiceLinks: false$/,
      /^PLANT_STORE_SERVICE_PORT: no such setting; [^;]+$/,
    ),
  );
});
