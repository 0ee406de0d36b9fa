import { resolve } from 'node:path';

import t, { type Test } from 'tap';

import { DEFAULT_LIMITS, MAX_LIMITS } from '../../dist/http/memory.js';
import {
  DATABASE_SETTINGS,
  LOG_SETTINGS,
  type Environment,
} from '../../dist/program/environment.js';
import { SettingsError } from '../../dist/program/settings-error.js';
import {
  readDatabaseServerSettings,
  readDatabaseSettings,
  readLogPath,
  readLogSettings,
  type LogSettings,
} from '../../dist/program/settings.js';
import { selfSigned } from '../certificate.js';

/** The faults that a function reports; none if it returns settings. */
async function faultsOf(read: () => unknown): Promise<readonly string[]> {
  try {
    await read();
    return [];
  } catch (error) {
    if (error instanceof SettingsError) return error.faults;
    throw error;
  }
}

const faultsIn = (environment: Environment): Promise<readonly string[]> =>
  faultsOf(() => readLogSettings(environment));

/** Checks the settings of an environment. Settings that are not given must have their defaults. */
async function isRead(
  t: Test,
  environment: Environment,
  expected: Partial<LogSettings>,
): Promise<void> {
  const settings = await readLogSettings(environment);
  t.strictSame(settings, { ...(await readLogSettings({})), ...expected });
}

/** Relative paths start from a folder with these files. */
const { cert, key } = selfSigned();
const folderBefore = process.cwd();
process.chdir(t.testdir({ secret: 'a\nb\n', 'a.pem': cert, 'b.pem': key }));
t.teardown(() => process.chdir(folderBefore));

const named = (path: string, setting?: string) => ({ path: resolve(path), setting });

t.test('an empty environment is valid', async (t) => {
  t.strictSame(await readLogSettings({}), {
    host: '127.0.0.1',
    port: 8080,
    inheritedSocket: undefined,
    file: resolve('data/plants.jsonl'),
    tokens: [],
    tokenFile: named('data/token'),
    tls: undefined,
    maxBodyBytes: DEFAULT_LIMITS.maxBodyBytes,
    maxBufferedBytes: DEFAULT_LIMITS.maxBufferedBytes,
    maxConnections: 10_000,
    keepAliveMs: 75_000,
    monitor: undefined,
  });
});

const { maxBodyBytes, maxBufferedBytes } = MAX_LIMITS;
const integers = {
  PLANT_STORE_PORT: ['port', 0, 65_535],
  PLANT_STORE_MAX_BODY: ['maxBodyBytes', 1, maxBodyBytes],
  PLANT_STORE_MAX_BUFFERED: ['maxBufferedBytes', 8 * DEFAULT_LIMITS.maxBodyBytes, maxBufferedBytes],
  PLANT_STORE_MAX_CONNECTIONS: ['maxConnections', 1, 1_000_000],
  PLANT_STORE_KEEP_ALIVE_SECONDS: ['keepAliveMs', 1, 86_400, 1_000],
} as const;

for (const [name, [setting, min, max, unit = 1]] of Object.entries(integers))
  t.test(`${name} must be an integer between ${min} and ${max}`, async (t) => {
    const isMaxBody = name === 'PLANT_STORE_MAX_BODY';
    const beside = isMaxBody ? { PLANT_STORE_MAX_BUFFERED: String(maxBufferedBytes) } : {};
    const read = isMaxBody ? { maxBufferedBytes } : {};
    for (const value of [min, min + 1, max - 1, max])
      await isRead(t, { [name]: String(value), ...beside }, { [setting]: value * unit, ...read });
    await isRead(t, { [name]: `00${max}`, ...beside }, { [setting]: max * unit, ...read });
    const others = [
      ...[min - 1, max + 1, 1e21, Infinity, NaN].map(String),
      ...['', ' ', ` ${max}`, `${max} `, `+${max}`, `${max}.0`, '1e3', '0x10', '1_000', '1,000'],
      ...['many', '8080\n', '٣', '1'.repeat(400)],
    ];
    for (const value of others)
      t.strictSame(
        await faultsIn({ [name]: value }),
        [`${name}: must be an integer between ${min} and ${max}`],
        JSON.stringify(value),
      );
  });

const logAt = (file: string) => ({ file: resolve(file), tokenFile: named(`${file}/../token`) });
const givenTokens = (...tokens: readonly string[]) => ({ tokens, tokenFile: undefined });
const tokensInFile = {
  tokens: ['a', 'b'],
  tokenFile: named('secret', 'PLANT_STORE_TOKEN_FILE'),
};
const monitorAt = (port: number, host = '127.0.0.1') => ({ monitor: { host, port } });
const tls = {
  cert: Buffer.from(cert),
  key: Buffer.from(key),
  files: {
    cert: named('a.pem', 'PLANT_STORE_TLS_CERT'),
    key: named('b.pem', 'PLANT_STORE_TLS_KEY'),
  },
  notAfter: Date.parse('2100-01-01T00:00:00Z'),
};

type Row = readonly [environment: Environment, expected: Partial<LogSettings>];
const accepted: Record<string, Row> = {
  'an address': [{ PLANT_STORE_HOST: '::1' }, { host: '::1' }],
  'the name of a host': [{ PLANT_STORE_HOST: 'plants.example' }, { host: 'plants.example' }],
  'a relative path': [{ PLANT_STORE_FILE: 'log/of plants' }, logAt('log/of plants')],
  'a path to the parent folder': [{ PLANT_STORE_FILE: '../log' }, logAt('../log')],
  'an absolute path': [{ PLANT_STORE_FILE: '/var/lib/plants/log' }, logAt('/var/lib/plants/log')],
  'a token file': [{ PLANT_STORE_TOKEN_FILE: 'secret' }, tokensInFile],
  'tokens with a space between': [{ PLANT_STORE_TOKEN: 'a b' }, givenTokens('a', 'b')],
  'tokens with white space around': [{ PLANT_STORE_TOKEN: ' a\tb ' }, givenTokens('a', 'b')],
  'tokens on lines': [{ PLANT_STORE_TOKEN: '\r\na\r\n\nb\n' }, givenTokens('a', 'b')],
  'tokens beside a token file, which is not looked at': [
    { PLANT_STORE_TOKEN: 'a', PLANT_STORE_TOKEN_FILE: 'none' },
    givenTokens('a'),
  ],
  'tokens beside a log with the name of the token file, which is not used': [
    { PLANT_STORE_TOKEN: 'a', PLANT_STORE_FILE: 'token' },
    { ...givenTokens('a'), file: resolve('token') },
  ],
  'a certificate and its key': [
    { PLANT_STORE_TLS_CERT: 'a.pem', PLANT_STORE_TLS_KEY: resolve('b.pem') },
    { tls },
  ],
  'the host of a monitor alone, without effect': [{ PLANT_STORE_MONITOR_HOST: '::1' }, {}],
  'a port of the monitor': [{ PLANT_STORE_MONITOR_PORT: '1' }, monitorAt(1)],
  'the largest port of the monitor': [{ PLANT_STORE_MONITOR_PORT: '65535' }, monitorAt(65_535)],
  'a host and a port of the monitor': [
    { PLANT_STORE_MONITOR_PORT: '9090', PLANT_STORE_MONITOR_HOST: '::1' },
    monitorAt(9090, '::1'),
  ],
  'a free port for the service and for the monitor': [
    { PLANT_STORE_PORT: '0', PLANT_STORE_MONITOR_PORT: '0' },
    { port: 0, ...monitorAt(0) },
  ],
  'a socket from systemd, which frees the default port for the monitor': [
    { LISTEN_PID: String(process.pid), LISTEN_FDS: '1', PLANT_STORE_MONITOR_PORT: '8080' },
    { inheritedSocket: 3, ...monitorAt(8080) },
  ],
  'as much memory for all requests as for eight bodies': [
    { PLANT_STORE_MAX_BODY: '9999', PLANT_STORE_MAX_BUFFERED: '79992' },
    { maxBodyBytes: 9_999, maxBufferedBytes: 79_992 },
  ],
  'variables of other programs': [
    { HOST: 'x', PORT: 'x', PLANT_STORE: 'x', plant_store_port: 'x', MY_PLANT_STORE_A: 'x' },
    {},
  ],
};

for (const [what, [environment, expected]] of Object.entries(accepted))
  t.test(`${what}: accepted`, (t) => isRead(t, environment, expected));

const SAME_PORT = 'PLANT_STORE_MONITOR_PORT: must not be PLANT_STORE_PORT';
const SAME_NAME = 'PLANT_STORE_FILE: must not have the name of the token file';
const TOGETHER = 'PLANT_STORE_TLS_CERT and PLANT_STORE_TLS_KEY: must be set together';
const refused: Record<string, readonly [environment: Environment, fault: string]> = {
  'a certificate without a key': [{ PLANT_STORE_TLS_CERT: 'a.pem' }, TOGETHER],
  'a key without a certificate': [{ PLANT_STORE_TLS_KEY: 'b.pem' }, TOGETHER],
  'a token that no request could carry': [
    { PLANT_STORE_TOKEN: 'good bäd' },
    'PLANT_STORE_TOKEN: number 2 has characters that a bearer token cannot have (RFC 6750)',
  ],
  'a log with the default name of the token file': [{ PLANT_STORE_FILE: 'data/token' }, SAME_NAME],
  'a log with the name of the token file': [
    { PLANT_STORE_FILE: 'secret', PLANT_STORE_TOKEN_FILE: 'secret' },
    SAME_NAME,
  ],
  'a monitor on the port of the service': [
    { PLANT_STORE_PORT: '9090', PLANT_STORE_MONITOR_PORT: '9090' },
    SAME_PORT,
  ],
  'a monitor on the default port of the service': [{ PLANT_STORE_MONITOR_PORT: '8080' }, SAME_PORT],
  'less memory for all requests than for eight bodies': [
    { PLANT_STORE_MAX_BODY: '9999', PLANT_STORE_MAX_BUFFERED: '79991' },
    `PLANT_STORE_MAX_BUFFERED: must be an integer between 79992 and ${maxBufferedBytes}`,
  ],
};
for (const value of ['-1', '65536', '', 'x'])
  refused[`the port '${value}' of a monitor`] = [
    { PLANT_STORE_MONITOR_PORT: value },
    'PLANT_STORE_MONITOR_PORT: must be an integer between 0 and 65535',
  ];
for (const name of ['HOST', 'FILE', 'TOKEN', 'TOKEN_FILE', 'TLS_CERT', 'TLS_KEY', 'MONITOR_HOST'])
  for (const value of ['', ' ', '\t\n'])
    refused[`the empty value ${JSON.stringify(value)} of ${name}`] = [
      { [`PLANT_STORE_${name}`]: value },
      `PLANT_STORE_${name}: must not be empty; leave it out instead`,
    ];
// It would have no effect.
for (const name of DATABASE_SETTINGS.filter((name) => name.includes('_DATABASE_')))
  refused[`${name}, a setting of the other program`] = [
    { [name]: '' },
    `${name}: is a setting of plant-store-postgres (dist/postgres-server.js)`,
  ];

for (const [what, [environment, fault]] of Object.entries(refused))
  t.test(`${what}: refused`, async (t) => t.strictSame(await faultsIn(environment), [fault]));

t.test('the commands on a log read only its path', async (t) => {
  t.equal(readLogPath({ PLANT_STORE_FILE: 'log', PLANT_STORE_PORT: 'x' }), resolve('log'));
  const fault = 'PLANT_STORE_FILE: must not be empty; leave it out instead';
  t.throws(() => readLogPath({ PLANT_STORE_FILE: ' ' }), { faults: [fault], message: fault });
});

t.test('all faults are reported together, with the names of the settings', async (t) => {
  const environment = Object.fromEntries(LOG_SETTINGS.map((name) => [name, '']));
  const names = (await faultsIn(environment)).map((fault) => fault.slice(0, fault.indexOf(':')));
  // The token file is not looked at if there are tokens.
  const expected = LOG_SETTINGS.filter((name) => name !== 'PLANT_STORE_TOKEN_FILE');
  t.strictSame(names.sort(), [...expected].sort());
});

t.test('no fault repeats a value, which may be a secret in the wrong variable', async (t) => {
  const secret = 'S3cret-ä';
  // The path of a token file that cannot be read is in the message.
  for (const name of LOG_SETTINGS.filter((name) => name !== 'PLANT_STORE_TOKEN_FILE'))
    for (const fault of await faultsIn({ [name]: secret })) t.notMatch(fault, secret);
});

const DATABASE = { PLANT_STORE_DATABASE_URL: 'postgres://plants@db/plants' };

t.test('the settings of a database have defaults, except its URL', async (t) => {
  const defaults = {
    url: DATABASE.PLANT_STORE_DATABASE_URL,
    passwordFile: undefined,
    connections: 2,
    acceptDataLoss: false,
  };
  t.strictSame(await readDatabaseSettings(DATABASE), defaults);
  const more = {
    PLANT_STORE_DATABASE_PASSWORD_FILE: 'secret',
    PLANT_STORE_DATABASE_CONNECTIONS: '1000',
    PLANT_STORE_DATABASE_ACCEPT_DATA_LOSS: 'true',
  };
  t.strictSame(await readDatabaseSettings({ ...DATABASE, ...more }), {
    ...defaults,
    passwordFile: named('secret', 'PLANT_STORE_DATABASE_PASSWORD_FILE'),
    connections: 1_000,
    acceptDataLoss: true,
  });
});

t.test('all faults of the database settings are reported, and no URL is repeated', async (t) => {
  const wrong = {
    PLANT_STORE_DATABASE_PASSWORD_FILE: ' ',
    PLANT_STORE_DATABASE_CONNECTIONS: '0',
    PLANT_STORE_DATABASE_ACCEPT_DATA_LOSS: 'yes',
  };
  for (const url of [undefined, 'http://a:S3cret@db/plants'])
    t.strictSame(
      await faultsOf(() => readDatabaseSettings({ ...wrong, PLANT_STORE_DATABASE_URL: url })),
      [
        'PLANT_STORE_DATABASE_URL: must be postgres://user[:password]@host[:port][,…]/database',
        'PLANT_STORE_DATABASE_PASSWORD_FILE: must not be empty; leave it out instead',
        'PLANT_STORE_DATABASE_CONNECTIONS: must be an integer between 1 and 1000',
        'PLANT_STORE_DATABASE_ACCEPT_DATA_LOSS: must be true or false',
      ],
    );
});

t.test('with a database, a token or a token file is required, and no log', async (t) => {
  const sources = [
    [{ PLANT_STORE_TOKEN_FILE: 'secret' }, tokensInFile],
    [{ PLANT_STORE_TOKEN: 'a' }, givenTokens('a')],
  ] as const;
  for (const [source, expected] of sources) {
    const { tokens, tokenFile } = await readDatabaseServerSettings({ ...DATABASE, ...source });
    t.strictSame({ tokens, tokenFile }, expected);
  }
  const wrong = { ...DATABASE, PLANT_STORE_FILE: 'a' };
  t.strictSame(await faultsOf(() => readDatabaseServerSettings(wrong)), [
    'PLANT_STORE_FILE: is a setting of plant-store (dist/server.js)',
    'PLANT_STORE_TOKEN or PLANT_STORE_TOKEN_FILE: must be set',
  ]);
});

t.test('a name that looks like a setting is a fault, with all names to choose from', async (t) => {
  const faultOf = (names: string, settings: readonly string[] = LOG_SETTINGS): string =>
    `${names}: no such setting; the settings are ${settings.join(', ')}`;
  const names = ['LOG', 'CONNECTIONS', 'PROT', 'TOKENS', 'DATABASE_URI', 'A_SERVICE', 'PORT_8080'];
  for (const name of names.map((each) => `PLANT_STORE_${each}`)) {
    t.strictSame(await faultsIn({ [name]: '1' }), [faultOf(name)]);
    t.strictSame(await faultsOf(() => readDatabaseSettings({ ...DATABASE, [name]: '1' })), [
      faultOf(name, DATABASE_SETTINGS),
    ]);
    t.throws(() => readLogPath({ [name]: '1' }), { message: faultOf(name) });
  }
  const two = { PLANT_STORE_A: '', PLANT_STORE_B: 'tcp://10.0.0.1:8080' };
  t.strictSame(await faultsIn(two), [faultOf('PLANT_STORE_A, PLANT_STORE_B')]);
});

t.test('variables that Kubernetes sets for a Service named plant-store… are ignored', async (t) => {
  const address = 'tcp://10.0.0.1:8080';
  const injected = {
    PLANT_STORE_SERVICE_HOST: '10.0.0.1',
    PLANT_STORE_SERVICE_PORT: '8080',
    PLANT_STORE_SERVICE_PORT_HTTP: '8080',
    PLANT_STORE_PORT_8080_TCP: address,
    PLANT_STORE_PORT_8080_TCP_PROTO: 'tcp',
    PLANT_STORE_PORT_8080_TCP_PORT: '8080',
    PLANT_STORE_PORT_8080_TCP_ADDR: '10.0.0.1',
    PLANT_STORE_A_PORT: address,
    PLANT_STORE_A_SERVICE_HOST: '10.0.0.1',
    PLANT_STORE_A_PORT_53_UDP_ADDR: '10.0.0.1',
    PLANT_STORE_WEB_PORT: address,
  };
  const reported = t.capture(console, 'error', () => undefined);
  await isRead(t, injected, {});
  t.strictSame(reported.args(), []);
  await isRead(t, { ...injected, PLANT_STORE_PORT: address }, {});
  const ignored = 'ignored, because Kubernetes has set it for a Service of this name';
  t.strictSame(reported.args(), [[`plant-store: PLANT_STORE_PORT: ${ignored}`]]);
});
