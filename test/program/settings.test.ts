import { resolve } from 'node:path';

import t, { type Test } from 'tap';

import { DEFAULT_LIMITS, MAX_LIMITS } from '../../dist/http/limits.js';
import {
  DATABASE_SETTINGS,
  LOG_SETTINGS,
  type Environment,
} from '../../dist/program/settings/environment.js';
import { SettingsError } from '../../dist/program/settings/settings-error.js';
import {
  readDatabaseServerSettings,
  readDatabaseSettings,
  readLogPath,
  readLogSettings,
  type LogSettings,
} from '../../dist/program/settings/settings.js';
import { selfSigned } from '../certificate.js';

const NAMES = [
  'PLANT_STORE_HOST',
  'PLANT_STORE_PORT',
  'PLANT_STORE_FILE',
  'PLANT_STORE_TOKEN',
  'PLANT_STORE_TOKEN_FILE',
  'PLANT_STORE_TLS_CERT',
  'PLANT_STORE_TLS_KEY',
  'PLANT_STORE_MAX_BODY',
  'PLANT_STORE_MAX_BUFFERED',
  'PLANT_STORE_MAX_CONNECTIONS',
  'PLANT_STORE_MONITOR_PORT',
  'PLANT_STORE_MONITOR_HOST',
] as const;

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

/** Until the test ends, relative paths start from a folder with these files. */
function inFolder(t: Test, files: Readonly<Record<string, string>> = {}): void {
  const before = process.cwd();
  process.chdir(t.testdir(files));
  t.teardown(() => process.chdir(before));
}

t.test('an empty environment is valid', async (t) => {
  inFolder(t);
  t.strictSame(await readLogSettings({}), {
    host: '127.0.0.1',
    port: 8080,
    inheritedSocket: undefined,
    file: resolve('data/plants.jsonl'),
    tokens: [],
    tokenFile: { path: resolve('data/token'), setting: undefined },
    tls: undefined,
    maxBodyBytes: DEFAULT_LIMITS.maxBodyBytes,
    maxBufferedBytes: DEFAULT_LIMITS.maxBufferedBytes,
    maxConnections: 10_000,
    keepAliveMs: 75_000,
    drainMs: 0,
    monitor: undefined,
  });
});

t.test('strings are used unchanged, paths are resolved from the working directory', async (t) => {
  const { cert, key } = selfSigned();
  inFolder(t, { secret: 'a\nb\n', 'a.pem': cert, 'b.pem': key });
  const named = (path: string, setting: string | undefined) => ({ path: resolve(path), setting });
  await isRead(t, { PLANT_STORE_HOST: '::1' }, { host: '::1' });
  await isRead(t, { PLANT_STORE_HOST: 'plants.example' }, { host: 'plants.example' });
  for (const file of ['log/of plants', '../log', '/var/lib/plants/log'])
    await isRead(
      t,
      { PLANT_STORE_FILE: file },
      { file: resolve(file), tokenFile: named(`${file}/../token`, undefined) },
    );
  await isRead(
    t,
    { PLANT_STORE_TOKEN_FILE: 'secret' },
    { tokens: ['a', 'b'], tokenFile: named('secret', 'PLANT_STORE_TOKEN_FILE') },
  );
  const files = {
    cert: named('a.pem', 'PLANT_STORE_TLS_CERT'),
    key: named('b.pem', 'PLANT_STORE_TLS_KEY'),
  };
  const notAfter = Date.parse('2100-01-01T00:00:00Z');
  await isRead(
    t,
    { PLANT_STORE_TLS_CERT: 'a.pem', PLANT_STORE_TLS_KEY: resolve('b.pem') },
    { tls: { cert: Buffer.from(cert), key: Buffer.from(key), files, notAfter } },
  );
});

t.test('tokens are separated by any white space, and disable the token file', async (t) => {
  for (const tokens of ['a b', ' a\tb ', 'a\nb\n', '\r\na\r\n\r\nb'])
    await isRead(t, { PLANT_STORE_TOKEN: tokens }, { tokens: ['a', 'b'], tokenFile: undefined });
  const longest = 'x'.repeat(511);
  await isRead(t, { PLANT_STORE_TOKEN: longest }, { tokens: [longest], tokenFile: undefined });
  await isRead(
    t,
    { PLANT_STORE_TOKEN: 'a', PLANT_STORE_TOKEN_FILE: 'token' },
    { tokens: ['a'], tokenFile: undefined },
  );
});

const { maxBodyBytes, maxBufferedBytes } = MAX_LIMITS;
const integers = {
  PLANT_STORE_PORT: ['port', 0, 65_535],
  PLANT_STORE_MAX_BODY: ['maxBodyBytes', 1, maxBodyBytes],
  PLANT_STORE_MAX_BUFFERED: ['maxBufferedBytes', DEFAULT_LIMITS.maxBodyBytes, maxBufferedBytes],
  PLANT_STORE_MAX_CONNECTIONS: ['maxConnections', 1, 1_000_000],
  PLANT_STORE_KEEP_ALIVE_SECONDS: ['keepAliveMs', 1, 86_400, 1_000],
  PLANT_STORE_DRAIN_SECONDS: ['drainMs', 0, 3_600, 1_000],
} as const;

for (const [name, [setting, min, max, unit = 1]] of Object.entries(integers))
  t.test(`${name} must be an integer between ${min} and ${max}`, async (t) => {
    for (const value of [min, min + 1, max - 1, max])
      await isRead(t, { [name]: String(value) }, { [setting]: value * unit });
    await isRead(t, { [name]: `00${max}` }, { [setting]: max * unit });
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

t.test('there is a monitor if its port is set', async (t) => {
  await isRead(t, { PLANT_STORE_MONITOR_HOST: '::1' }, {});
  for (const port of [0, 9090, 65_535])
    await isRead(
      t,
      { PLANT_STORE_MONITOR_PORT: String(port) },
      { monitor: { host: '127.0.0.1', port } },
    );
  const both = { PLANT_STORE_MONITOR_PORT: '9090', PLANT_STORE_MONITOR_HOST: '::1' };
  await isRead(t, both, { monitor: { host: '::1', port: 9090 } });
  for (const value of ['-1', '65536', '', 'x'])
    t.strictSame(await faultsIn({ PLANT_STORE_MONITOR_PORT: value }), [
      'PLANT_STORE_MONITOR_PORT: must be an integer between 0 and 65535',
    ]);
});

t.test('the monitor must not have the port of the service', async (t) => {
  const ports = (service: string, monitor: string) =>
    faultsIn({ PLANT_STORE_PORT: service, PLANT_STORE_MONITOR_PORT: monitor });
  const fault = 'PLANT_STORE_MONITOR_PORT: must not be PLANT_STORE_PORT';
  t.strictSame(await ports('9090', '9090'), [fault]);
  t.strictSame(await ports('9090', '9091'), []);
  t.strictSame(await ports('0', '0'), []);
  t.strictSame(await faultsIn({ PLANT_STORE_MONITOR_PORT: '8080' }), [fault]);
});

t.test('with a socket from systemd, the default port is free for the monitor', async (t) => {
  const socket = { LISTEN_PID: String(process.pid), LISTEN_FDS: '1' };
  await isRead(
    t,
    { ...socket, PLANT_STORE_MONITOR_PORT: '8080' },
    { inheritedSocket: 3, monitor: { host: '127.0.0.1', port: 8080 } },
  );
});

t.test('PLANT_STORE_MAX_BUFFERED must not be less than PLANT_STORE_MAX_BODY', async (t) => {
  const both = (body: number, buffered: number) => ({
    PLANT_STORE_MAX_BODY: String(body),
    PLANT_STORE_MAX_BUFFERED: String(buffered),
  });
  await isRead(t, both(9_999, 9_999), { maxBodyBytes: 9_999, maxBufferedBytes: 9_999 });
  t.strictSame(await faultsIn(both(9_999, 9_998)), [
    `PLANT_STORE_MAX_BUFFERED: must be an integer between 9999 and ${maxBufferedBytes}`,
  ]);
});

const faults: Record<string, [environment: Environment, fault: string]> = {
  'a certificate without a key': [
    { PLANT_STORE_TLS_CERT: 'a.pem' },
    'PLANT_STORE_TLS_CERT and PLANT_STORE_TLS_KEY: must be set together',
  ],
  'a key without a certificate': [
    { PLANT_STORE_TLS_KEY: 'b.pem' },
    'PLANT_STORE_TLS_CERT and PLANT_STORE_TLS_KEY: must be set together',
  ],
  'a token that no request could carry': [
    { PLANT_STORE_TOKEN: 'good bäd' },
    'PLANT_STORE_TOKEN: number 2 has characters that a bearer token cannot have (RFC 6750)',
  ],
  'a token that is too long': [
    { PLANT_STORE_TOKEN: 'x'.repeat(512) },
    'PLANT_STORE_TOKEN: number 1 is longer than 511 characters',
  ],
};

for (const [what, [environment, fault]] of Object.entries(faults))
  t.test(`${what} is refused`, async (t) => t.strictSame(await faultsIn(environment), [fault]));

t.test('the log must not have the name of the token file', async (t) => {
  const fault = 'PLANT_STORE_FILE: must not have the name of the token file';
  t.strictSame(await faultsIn({ PLANT_STORE_FILE: 'data/token' }), [fault]);
  inFolder(t, { secret: 'a' });
  const env = { PLANT_STORE_FILE: 'secret', PLANT_STORE_TOKEN_FILE: 'secret' };
  t.strictSame(await faultsIn(env), [fault]);
  t.strictSame(await faultsIn({ PLANT_STORE_FILE: 'token', PLANT_STORE_TOKEN: 'a' }), []);
});

t.test('an empty value is refused', async (t) => {
  const texts = NAMES.filter((name) => !(name in integers) && name !== 'PLANT_STORE_MONITOR_PORT');
  for (const name of texts)
    for (const value of ['', ' ', '\t\n'])
      t.strictSame(
        await faultsIn({ [name]: value }),
        [`${name}: must not be empty; leave it out instead`],
        `${name}=${JSON.stringify(value)}`,
      );
  const fault = 'PLANT_STORE_FILE: must not be empty; leave it out instead';
  t.throws(() => readLogPath({ PLANT_STORE_FILE: ' ' }), { faults: [fault], message: fault });
});

t.test('all faults are reported together, with the names of the settings', async (t) => {
  const wrong: Record<(typeof NAMES)[number], string> = {
    PLANT_STORE_HOST: '',
    PLANT_STORE_PORT: '65536',
    PLANT_STORE_FILE: '',
    PLANT_STORE_TOKEN: 'ä',
    PLANT_STORE_TOKEN_FILE: 'is not looked at where there are tokens',
    PLANT_STORE_TLS_CERT: '',
    PLANT_STORE_TLS_KEY: '',
    PLANT_STORE_MAX_BODY: '0',
    PLANT_STORE_MAX_BUFFERED: '0',
    PLANT_STORE_MAX_CONNECTIONS: '0',
    PLANT_STORE_MONITOR_PORT: '65536',
    PLANT_STORE_MONITOR_HOST: '',
  };
  const names = (await faultsIn(wrong)).map((fault) => fault.slice(0, fault.indexOf(':')));
  t.strictSame(names.sort(), NAMES.filter((name) => name !== 'PLANT_STORE_TOKEN_FILE').sort());
});

t.test('no fault repeats a value, which may be a secret in the wrong variable', async (t) => {
  const secret = 'S3cret-ä';
  // The path of a token file that cannot be read is in the message.
  for (const name of NAMES.filter((name) => name !== 'PLANT_STORE_TOKEN_FILE'))
    for (const fault of await faultsIn({ [name]: secret })) t.notMatch(fault, secret);
});

t.test('other environment variables are ignored', async (t) => {
  await isRead(t, { HOST: 'x', PORT: 'x', PLANT_STORE: 'x', plant_store_port: 'x' }, {});
});

const DATABASE = { PLANT_STORE_DATABASE_URL: 'postgres://plants@db/plants' };

t.test('the settings of a database have defaults, except its URL', async (t) => {
  const defaults = {
    url: DATABASE.PLANT_STORE_DATABASE_URL,
    passwordFile: undefined,
    connections: 2,
    acceptDataLoss: false,
  };
  inFolder(t, { password: 'secret' });
  t.strictSame(await readDatabaseSettings(DATABASE), defaults);
  const more = {
    PLANT_STORE_DATABASE_PASSWORD_FILE: 'password',
    PLANT_STORE_DATABASE_CONNECTIONS: '1000',
    PLANT_STORE_DATABASE_ACCEPT_DATA_LOSS: 'true',
  };
  t.strictSame(await readDatabaseSettings({ ...DATABASE, ...more }), {
    ...defaults,
    passwordFile: { path: resolve('password'), setting: 'PLANT_STORE_DATABASE_PASSWORD_FILE' },
    connections: 1_000,
    acceptDataLoss: true,
  });
});

t.test('all faults of the database settings are reported, and no URL is repeated', async (t) => {
  const url =
    'PLANT_STORE_DATABASE_URL: must be postgres://user[:password]@host[:port][,…]/database';
  const wrong = {
    PLANT_STORE_DATABASE_PASSWORD_FILE: ' ',
    PLANT_STORE_DATABASE_CONNECTIONS: '0',
    PLANT_STORE_DATABASE_ACCEPT_DATA_LOSS: 'yes',
  };
  for (const value of [
    undefined,
    '',
    'http://a:S3cret@db/plants',
    'postgres://a:S3@cret@db/plants',
  ])
    t.strictSame(
      await faultsOf(() => readDatabaseSettings({ ...wrong, PLANT_STORE_DATABASE_URL: value })),
      [
        url,
        'PLANT_STORE_DATABASE_PASSWORD_FILE: must not be empty; leave it out instead',
        'PLANT_STORE_DATABASE_CONNECTIONS: must be an integer between 1 and 1000',
        'PLANT_STORE_DATABASE_ACCEPT_DATA_LOSS: must be true or false',
      ],
    );
});

t.test('a setting of the other program is refused: it would have no effect', async (t) => {
  for (const name of ['URL', 'PASSWORD_FILE', 'CONNECTIONS', 'ACCEPT_DATA_LOSS'])
    t.strictSame(await faultsIn({ [`PLANT_STORE_DATABASE_${name}`]: '' }), [
      `PLANT_STORE_DATABASE_${name}: is a setting of plant-store-postgres (dist/postgres-server.js)`,
    ]);
  const env = { ...DATABASE, PLANT_STORE_FILE: 'a', PLANT_STORE_TOKEN: 'a' };
  const fault = 'PLANT_STORE_FILE: is a setting of plant-store (dist/server.js)';
  t.strictSame(await faultsOf(() => readDatabaseServerSettings(env)), [fault]);
});

t.test('with a database, a token or a token file is required', async (t) => {
  inFolder(t, { secret: 'b' });
  const tokenFile = { path: resolve('secret'), setting: 'PLANT_STORE_TOKEN_FILE' };
  const sources = [
    [{ PLANT_STORE_TOKEN_FILE: 'secret' }, { tokens: ['b'], tokenFile }],
    [{ PLANT_STORE_TOKEN: 'a' }, { tokens: ['a'], tokenFile: undefined }],
  ] as const;
  for (const [source, expected] of sources) {
    const { tokens, tokenFile } = await readDatabaseServerSettings({ ...DATABASE, ...source });
    t.strictSame({ tokens, tokenFile }, expected);
  }
  t.strictSame(await faultsOf(() => readDatabaseServerSettings(DATABASE)), [
    'PLANT_STORE_TOKEN or PLANT_STORE_TOKEN_FILE: must be set',
  ]);
});

t.test(
  'a variable that looks like a setting is a fault, with the names of all settings',
  async (t) => {
    const faultOf = (names: string, settings: readonly string[] = LOG_SETTINGS): string =>
      `${names}: no such setting; the settings are ${settings.join(', ')}`;
    const names = [
      'LOG',
      'CONNECTIONS',
      'PROT',
      'TOKENS',
      'DATABASE_URI',
      'A_SERVICE',
      'PORT_8080',
    ];
    for (const name of names.map((each) => `PLANT_STORE_${each}`)) {
      const fault = faultOf(name);
      t.strictSame(await faultsIn({ [name]: '1' }), [fault]);
      t.strictSame(await faultsOf(() => readDatabaseSettings({ ...DATABASE, [name]: '1' })), [
        faultOf(name, DATABASE_SETTINGS),
      ]);
      t.throws(() => readLogPath({ [name]: '1' }), { message: fault });
    }
    t.strictSame(await faultsIn({ PLANT_STORE_A: '', PLANT_STORE_B: '' }), [
      faultOf('PLANT_STORE_A, PLANT_STORE_B'),
    ]);
    t.strictSame(await faultsIn({ MY_PLANT_STORE_A: '', plant_store_a: '' }), []);
  },
);

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
  t.strictSame(reported(), []);
  await isRead(t, { ...injected, PLANT_STORE_PORT: address }, {});
  t.strictSame(
    reported().map(({ args }) => args as unknown),
    [
      [
        'plant-store: PLANT_STORE_PORT: ignored, because Kubernetes has set it for a Service of this name',
      ],
    ],
  );
});
