import { execFileSync, spawnSync } from 'node:child_process';
import {
  closeSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';

import t, { type Test } from 'tap';

import { readServerSettings } from '../../dist/program/environment.js';
import { serve } from '../../dist/program/serve.js';
import { connect, exchange, FERN, message } from '../client.js';
import { freePort, listen } from '../service.js';
import { gatedStore } from '../stores.js';
import {
  createDisk,
  DONE,
  ENV,
  FAILED,
  failsToRun,
  LARGE_LOG,
  launch,
  MISUSED,
  onceReading,
  SERVER,
  start,
  toItself,
} from '../system/program.js';

const RECORD = '{"id":7,"name":"Boston fern","tag":"indoor","crc32":1134476476}\n';

/** The status of a plant that is sent with a token. */
async function statusWith(t: Test, port: number, token: string): Promise<number> {
  const bytes = message({ headers: { Authorization: `Bearer ${token}` } });
  return (await exchange(t, port, bytes)).status;
}

t.test('a database is served under its name', async (t) => {
  const written = t.capture(console, 'log', () => undefined);
  const stopping = new AbortController();
  const { signal } = stopping;
  const store = { ...gatedStore(), name: 'db:5432/plants', check: () => Promise.resolve() };
  const shutdown = {
    requested: signal,
    timeUp: new Promise<undefined>(() => undefined),
    request: () => stopping.abort(),
    onHangup: () => stopping.abort(),
  };
  const settings = await readServerSettings({ PLANT_STORE_PORT: '0', PLANT_STORE_TOKEN: 'a' });
  t.equal(await serve(settings, shutdown, () => Promise.resolve(store)), 0);
  const [, line] = written().map(({ args }) => args as unknown);
  t.strictSame(line, ['database: db:5432/plants']);
});

t.test('the first start needs no settings, and writes no secret to its output', async (t) => {
  const cwd = t.testdir();
  const data = join(cwd, 'data');
  const program = await start(t, { cwd });
  t.equal(
    program.stdout,
    [
      `plant-store listening on http://127.0.0.1:${program.port}`,
      `log: ${data}/plants.jsonl`,
      'plants: 0',
      `token: ${data}/token`,
      '',
    ].join('\n'),
  );
  t.match(readFileSync(`${data}/token`, 'utf8'), /^[\w-]{43}\n$/);
  for (const file of ['token', 'plants.jsonl'])
    t.equal(statSync(join(data, file)).mode & 0o777, 0o600, `only the owner can read the ${file}`);

  t.equal(await statusWith(t, program.port, 'another'), 401);
  t.equal(await statusWith(t, program.port, program.token), 200);
  t.equal(readFileSync(program.log, 'utf8'), RECORD);
  t.strictSame(await program.stop('SIGTERM'), DONE);
  t.notMatch(program.stdout, program.token);
  t.equal(program.stderr, '');
});

t.test('the next start finds the plants and the token, also behind a symbolic link', async (t) => {
  const cwd = t.testdir({ disk: { token: 'the-token\n', 'plants.jsonl': RECORD } });
  symlinkSync('disk', join(cwd, 'data'));
  const program = await start(t, { cwd });
  t.equal(program.log, `${cwd}/disk/plants.jsonl`, 'the log is reported by its real path');
  t.equal(program.plants, 1);
  t.equal(program.stderr, '');
  t.equal(program.token, 'the-token');
  t.equal(await statusWith(t, program.port, 'the-token'), 200);
  t.equal(readFileSync(program.log, 'utf8'), RECORD, 'it is the same plant');
  t.strictSame(
    readdirSync(join(cwd, 'disk'))
      .filter((name) => !name.startsWith('.'))
      .sort(),
    ['plants.jsonl', 'token'],
  );
});

t.test('a token file that cannot be read is refused, and not replaced', async (t) => {
  const faults = {
    'mkdir token': 'illegal operation on a directory (EISDIR)',
    'ln -s missing token': 'no such file or directory (ENOENT)',
  };
  for (const [command, fault] of Object.entries(faults)) {
    const cwd = t.testdir({ data: {} });
    execFileSync('sh', ['-c', command], { cwd: join(cwd, 'data') });
    await failsToRun(t, MISUSED, [`${cwd}/data/token: ${fault}`], { cwd });
  }
});

t.test('a token file is only read, so its folder need not be writable', async (t) => {
  const cwd = t.testdir({ token: 'the-token\n' });
  const file = openSync(join(cwd, 'token'), 'r');
  t.teardown(() => closeSync(file));
  const env = {
    PLANT_STORE_FILE: 'plants.jsonl',
    // Nobody can create a file in this folder.
    PLANT_STORE_TOKEN_FILE: `/proc/${process.pid}/fd/${file}`,
  };
  const program = await start(t, { cwd, env });
  t.equal(await statusWith(t, program.port, 'the-token'), 200);
});

const WRITE_TOKEN = `writeFileSync('data/token', 'new');`;
const whileReading: Record<string, readonly [before: { token?: string }, code: string]> = {
  'a new token file': [{}, WRITE_TOKEN],
  'a changed one, after SIGHUP': [{ token: 'old' }, WRITE_TOKEN + toItself('SIGHUP')],
};

for (const [what, [before, code]] of Object.entries(whileReading))
  t.test(`a token file that is written while the log is read is used: ${what}`, async (t) => {
    const cwd = t.testdir({ data: { ...before, 'plants.jsonl': LARGE_LOG } });
    const program = await start(t, { cwd, preload: onceReading(code) });
    if (before.token) await program.says('stderr', /token: accepts 1 token\n/);
    t.equal(await statusWith(t, program.port, 'old'), 401);
    t.equal(await statusWith(t, program.port, 'new'), 400, 'the id belongs to another plant');
  });

t.test('the program reports in a sentence why it cannot serve', async (t) => {
  const port = await listen(t, createHttpServer());
  const cannotListen = (place: string): string => `cannot listen on ${place}: address`;
  const failures = {
    'a port in use': [
      { PLANT_STORE_PORT: String(port) },
      `PLANT_STORE_PORT: ${cannotListen(`127.0.0.1, port ${port}`)} already in use (EADDRINUSE)`,
    ],
    'an address of another machine': [
      { PLANT_STORE_HOST: '192.0.2.1' },
      `PLANT_STORE_HOST: ${cannotListen('192.0.2.1, port 0')} not available (EADDRNOTAVAIL)`,
    ],
    'a folder where the log should be': [
      { PLANT_STORE_FILE: 'folder' },
      'PLANT_STORE_FILE: FOLDER: illegal operation on a directory (EISDIR)',
    ],
  } as const;
  for (const [what, [env, sentence]] of Object.entries(failures))
    await t.test(what, async (t) => {
      const cwd = t.testdir({ folder: {} });
      const sentences = [sentence.replace('FOLDER', join(cwd, 'folder'))];
      await failsToRun(t, FAILED, sentences, { cwd, env: { ...ENV, ...env } });
    });
});

t.test('SIGHUP reads the token file again', async (t) => {
  const cwd = t.testdir({ data: { token: 'old\n' } });
  const program = await start(t, { cwd });
  for (const [content, accepts, ofOld, ofNew] of [
    ['old\nnew\n', '2 tokens', 200, 200],
    ['new\n', '1 token', 401, 200],
  ] as const) {
    writeFileSync(join(cwd, 'data/token'), content);
    program.send('SIGHUP');
    await program.says('stderr', new RegExp(`token: accepts ${accepts}\n`));
    t.equal(await statusWith(t, program.port, 'old'), ofOld);
    t.equal(await statusWith(t, program.port, 'new'), ofNew);
  }
  t.strictSame(await program.stop('SIGTERM'), DONE);
});

/** Shell commands that make the file `token` faulty if there is none, and the faults. */
const FAULTY = {
  'echo "new\n???" > token': 'line 2 has characters .+',
  true: 'no such file .+',
  'mkdir token': 'illegal operation on a directory .+',
};

t.test(
  'SIGHUP reports a faulty token file, the old tokens are kept, and it works again',
  async (t) => {
    const cwd = t.testdir({ data: { token: 'old\n' } });
    const data = join(cwd, 'data');
    const program = await start(t, { cwd });
    for (const [command, fault] of Object.entries(FAULTY)) {
      execFileSync('sh', ['-c', `rm -r token; ${command}`], { cwd: data });
      program.send('SIGHUP');
      await program.says('stderr', new RegExp(`token: ${fault}; the tokens stay as they were\n$`));
      t.equal(await statusWith(t, program.port, 'old'), 200);
      t.equal(await statusWith(t, program.port, 'new'), 401);
      if (command === 'true') t.notOk(readdirSync(data).includes('token'), 'none is created');

      rmSync(join(data, 'token'), { force: true, recursive: true });
      writeFileSync(join(data, 'token'), 'old\nthird\n');
      program.send('SIGHUP');
      await program.says('stderr', /token: accepts 2 tokens\n$/);
      t.equal(await statusWith(t, program.port, 'third'), 200);
    }
    t.strictSame(await program.stop('SIGTERM'), DONE);
  },
);

t.test(
  'a SIGHUP while the reading of the token file hangs reads it once more, and the tokens stay',
  async (t) => {
    const disk = createDisk(t);
    const token = join(disk.cwd, 'token');
    writeFileSync(token, 'old\n');
    const env = { ...disk.env, PLANT_STORE_FILE: 'plants.jsonl' };
    const program = await start(t, { cwd: disk.cwd, env, preload: disk.preload });
    writeFileSync(token, 'new\n');
    await disk.hang(program);
    for (let times = 0; times < 3; times++) {
      program.send('SIGHUP');
      t.equal(await statusWith(t, program.port, 'new'), 401, 'the old tokens stay');
    }
    disk.respond();
    const read = `plant-store: ${token}: accepts 1 token\n`;
    await program.says('stderr', new RegExp(`^(${read}){3}$`));
    t.equal(await statusWith(t, program.port, 'new'), 200);
    program.send('SIGHUP');
    await program.says('stderr', new RegExp(`^(${read}){4}$`));
    t.strictSame(await program.stop('SIGTERM'), DONE);
  },
);

t.test('SIGHUP reports that tokens of the environment cannot be read again', async (t) => {
  const env = { ...ENV, PLANT_STORE_TOKEN: ' one\ttwo\n' };
  const program = await start(t, { cwd: t.testdir(), env });
  t.match(program.stdout, /^token: from PLANT_STORE_TOKEN$/m);
  program.send('SIGHUP');
  await program.says('stderr', /PLANT_STORE_TOKEN change only with a restart\n/);
  for (const [token, status] of Object.entries({ one: 200, two: 200, three: 401 }))
    t.equal(await statusWith(t, program.port, token), status, token);
  t.strictSame(await program.stop('SIGTERM'), DONE);
  t.equal(
    program.stderr,
    'plant-store: SIGHUP: the tokens in PLANT_STORE_TOKEN change only with a restart\n',
  );
});

const hasScript = spawnSync('script', ['-qec', 'true', '/dev/null']).status === 0;

t.test(
  'with a terminal as its standard input, the program stops on SIGHUP',
  { skip: !hasScript && 'needs script of util-linux' },
  async (t) => {
    const cwd = t.testdir();
    const command = ['script', '-qefc', `exec '${process.execPath}' '${SERVER}'`, '/dev/null'];
    const program = launch(t, { cwd, env: ENV, command });
    await program.says('stdout', /token: from PLANT_STORE_TOKEN\r\n/);
    const [pid] = /^\d+/.exec(childrenOf(program.pid)) ?? [];
    process.kill(Number(pid), 'SIGHUP');
    t.strictSame(await program.ended, DONE);
    t.match(program.stdout, /SIGHUP: stopping, because the standard input is a terminal\r\n$/);
  },
);

/** The process ids of the children of a process. */
function childrenOf(pid: number): string {
  return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8');
}

t.test('the program serves with stdout and stderr closed', async (t) => {
  const cwd = t.testdir({ data: { token: 'old\n' } });
  const PLANT_STORE_PORT = String(await freePort());
  const program = launch(t, { cwd, env: { PLANT_STORE_PORT } });
  program.leave('stdout');
  program.leave('stderr');
  const port = Number(PLANT_STORE_PORT);
  while ((await statusWith(t, port, 'old').catch(() => 0)) !== 200);
  writeFileSync(join(cwd, 'data/token'), 'old\nnew\n');
  program.send('SIGHUP');
  while ((await statusWith(t, port, 'new')) !== 200);
  program.send('SIGTERM');
  t.strictSame(await program.ended, DONE);
});

const hasIPv6 = Object.values(networkInterfaces())
  .flat()
  .some((each) => each?.address === '::1');

t.test('the program listens only on the configured address', { skip: !hasIPv6 }, async (t) => {
  const env = { ...ENV, PLANT_STORE_HOST: '::1' };
  const program = await start(t, { cwd: t.testdir(), env });
  t.equal(program.url, `http://[::1]:${program.port}`);
  await t.rejects(connect(t, program.port), { code: 'ECONNREFUSED' });
  t.strictSame(await program.stop('SIGTERM'), DONE);
});

const CLIENTS = 1000;
const hasQueue = Number(readFileSync('/proc/sys/net/core/somaxconn', 'utf8')) >= CLIENTS;

t.test(
  'a thousand clients can connect while the program is busy',
  { skip: !hasQueue },
  async (t) => {
    const program = await start(t, { cwd: t.testdir(), env: ENV });
    program.send('SIGSTOP');
    const clients = await Promise.all(
      Array.from({ length: CLIENTS }, () => connect(t, program.port)),
    );
    program.send('SIGCONT');
    for (const client of clients) client.send(message());
    const answers = await Promise.all(clients.map((client) => client.answer()));
    t.equal(answers.filter(({ status }) => status === 200).length, CLIENTS);
  },
);

t.test('the program applies the settings for the log and the limits', async (t) => {
  const env = {
    ...ENV,
    PLANT_STORE_FILE: 'a/b/log',
    PLANT_STORE_MAX_BODY: String(FERN.length),
    PLANT_STORE_MAX_BUFFERED: String(8 * FERN.length),
  };
  const cwd = t.testdir({ a: {} });
  const { port, log } = await start(t, { cwd, env });
  t.equal(log, join(cwd, 'a/b/log'));
  const client = await connect(t, port);
  client.send(message({ body: `${FERN} ` }));
  t.match(await client.answer(), { status: 400, body: '"error":413' });
  client.send(message());
  t.match(await client.answer(), { status: 200 });
});
