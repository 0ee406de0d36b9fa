import { execFileSync, spawnSync } from 'node:child_process';
import {
  closeSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';

import t, { type Test } from 'tap';

import { connect, exchange, FERN, message, TOKEN } from '../client.js';
import { freePort, listen } from '../service.js';
import { failsToRun, LARGE_LOG, launch, onceReading, SERVER, start } from '../system/program.js';

const RECORD = '{"id":7,"name":"Boston fern","tag":"indoor","crc32":1134476476}\n';
const ENV = { PLANT_STORE_TOKEN: TOKEN, PLANT_STORE_FILE: 'plants.jsonl' };
const DONE = { code: 0, signal: null };
const FAILED = 1;
const MISUSED = 2;

/** The status of a plant that is sent with a token. */
async function statusWith(t: Test, port: number, token: string): Promise<number> {
  const bytes = message({ headers: { Authorization: `Bearer ${token}` } });
  return (await exchange(t, port, bytes)).status;
}

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

t.test('a token file that cannot be read is refused', async (t) => {
  const cwd = t.testdir({ data: { token: {} } });
  const fault = `${cwd}/data/token: it is not a regular file`;
  await failsToRun(t, MISUSED, [fault], { cwd });
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

t.test('a symbolic link to a missing token file is not replaced', async (t) => {
  const cwd = t.testdir({ data: {} });
  symlinkSync('missing', join(cwd, 'data/token'));
  const sentence = `${cwd}/data/token: no such file or directory (ENOENT)`;
  await failsToRun(t, MISUSED, [sentence], { cwd });
});

t.test('a token file that is written while the log is read is used', async (t) => {
  const preload = onceReading(`writeFileSync('data/token', 'new')`);
  const cwd = t.testdir({ data: { 'plants.jsonl': LARGE_LOG } });
  const program = await start(t, { cwd, preload });
  t.equal(program.token, 'new');
  t.equal(await statusWith(t, program.port, 'new'), 400, 'the id belongs to another plant');
});

t.test('SIGHUP while the log is read makes the program read the token file again', async (t) => {
  const preload = onceReading(
    `writeFileSync('data/token', 'new'); process.kill(process.pid, 'SIGHUP')`,
  );
  const cwd = t.testdir({ data: { token: 'old', 'plants.jsonl': LARGE_LOG } });
  const program = await start(t, { cwd, preload });
  await program.says('stderr', /token: accepts 1 token\n/);
  t.equal(await statusWith(t, program.port, 'old'), 401);
  t.equal(await statusWith(t, program.port, 'new'), 400, 'the id belongs to another plant');
});

t.test('the program reports in a sentence why it cannot serve', async (t) => {
  const busy = await listen(t, createHttpServer());
  const failures: Record<string, [env: Record<string, string>, sentence: (cwd: string) => string]> =
    {
      'a port in use': [
        { PLANT_STORE_PORT: String(busy) },
        () =>
          `PLANT_STORE_PORT: cannot listen on 127.0.0.1, port ${busy}: address already in use (EADDRINUSE)`,
      ],
      'an address of another machine': [
        { PLANT_STORE_HOST: '192.0.2.1' },
        () =>
          'PLANT_STORE_HOST: cannot listen on 192.0.2.1, port 0: address not available (EADDRNOTAVAIL)',
      ],
      'a folder that cannot be created': [
        { PLANT_STORE_FILE: 'file/folder/plants.jsonl' },
        (cwd) => `PLANT_STORE_FILE: ${cwd}/file/folder/plants.jsonl: not a directory (ENOTDIR)`,
      ],
      'a folder where the log should be': [
        { PLANT_STORE_FILE: 'folder' },
        (cwd) => `PLANT_STORE_FILE: ${cwd}/folder: illegal operation on a directory (EISDIR)`,
      ],
    };
  for (const [what, [env, sentence]] of Object.entries(failures))
    await t.test(what, async (t) => {
      const cwd = t.testdir({ file: '', folder: {} });
      await failsToRun(t, FAILED, [sentence(cwd)], { cwd, env: { ...ENV, ...env } });
      // The lock of an open log is a socket beside it. Node 26 reports a log that nobody closes.
      const locks = readdirSync(cwd).filter((name) => name.startsWith('.plant-store-'));
      t.strictSame(locks, [], 'the log is closed');
    });
});

t.test('a log that another program has open is refused', async (t) => {
  const cwd = t.testdir();
  const first = await start(t, { cwd, env: ENV });
  const reason =
    'another process has the log open; one log serves one process, plant-store/postgres serves several';
  const sentences = [`${first.log}: ${reason}`, `process ${first.pid} has the log open`];
  await failsToRun(t, FAILED, sentences, { cwd, env: ENV });
  t.equal(await statusWith(t, first.port, TOKEN), 200);
});

t.test('a partial last line is moved to a file beside the log', async (t) => {
  const torn = '{"id":8,"name":"a f';
  const cwd = t.testdir({ 'plants.jsonl': RECORD + torn });
  const program = await start(t, { cwd, env: ENV });
  t.equal(program.plants, 1);
  t.equal(readFileSync(program.log, 'utf8'), RECORD);
  const [, aside = ''] =
    /^plant-store: .+: moved 19 bytes .+ to (.+)\n$/.exec(program.stderr) ?? [];
  t.equal(readFileSync(aside, 'utf8'), torn);
});

t.test('every token of the setting and of the token file is accepted', async (t) => {
  const cwd = t.testdir({ tokens: 'one\r\n\r\ntwo\n' });
  const sources = [
    { ...ENV, PLANT_STORE_TOKEN: ' one\ttwo\n' },
    { PLANT_STORE_FILE: 'plants.jsonl', PLANT_STORE_TOKEN_FILE: 'tokens' },
  ];
  const places = [];
  for (const env of sources) {
    const program = await start(t, { cwd, env });
    for (const [token, status] of Object.entries({ one: 200, two: 200, three: 401 }))
      t.equal(await statusWith(t, program.port, token), status, token);
    places.push(/token: (.+)/.exec(program.stdout)?.[1]);
    await program.stop('SIGTERM');
  }
  t.strictSame(places, ['from PLANT_STORE_TOKEN', join(cwd, 'tokens')]);
});

t.test('SIGHUP reads the token file again', async (t) => {
  const cwd = t.testdir({ data: { token: 'old\n' } });
  const program = await start(t, { cwd });
  const file = join(cwd, 'data/token');
  writeFileSync(file, 'old\nnew\n');
  program.send('SIGHUP');
  await program.says('stderr', /token: accepts 2 tokens\n/);
  t.equal(await statusWith(t, program.port, 'old'), 200);
  t.equal(await statusWith(t, program.port, 'new'), 200);
  writeFileSync(file, 'new\n');
  program.send('SIGHUP');
  await program.says('stderr', /token: accepts 1 token\n/);
  t.equal(await statusWith(t, program.port, 'old'), 401);
  t.equal(await statusWith(t, program.port, 'new'), 200);
  t.strictSame(await program.stop('SIGTERM'), DONE);
});

t.test('SIGHUP reports a faulty token file, and the old tokens are still accepted', async (t) => {
  const cwd = t.testdir({ data: { token: 'old\n' } });
  const program = await start(t, { cwd });
  const file = join(cwd, 'data/token');
  writeFileSync(file, 'new\n???\n');
  program.send('SIGHUP');
  await program.says('stderr', /token: line 2 has characters .+; the tokens stay as they were\n/);
  renameSync(file, `${file}.away`);
  program.send('SIGHUP');
  await program.says('stderr', /token: no such file .+; the tokens stay as they were\n/);
  t.equal(await statusWith(t, program.port, 'old'), 200);
  t.equal(await statusWith(t, program.port, 'new'), 401);
  t.notOk(readdirSync(join(cwd, 'data')).includes('token'), 'no token file is created');
  t.strictSame(await program.stop('SIGTERM'), DONE);
});

t.test(
  'SIGHUP reports a token file that is a FIFO or endless, and the next one works',
  async (t) => {
    const cwd = t.testdir({ data: { token: 'old\n' } });
    const program = await start(t, { cwd });
    const file = join(cwd, 'data/token');
    for (const [round, command] of ['mkfifo token', 'ln -s /dev/zero token'].entries()) {
      execFileSync('sh', ['-c', `rm token && ${command}`], { cwd: join(cwd, 'data') });
      program.send('SIGHUP');
      await program.says(
        'stderr',
        /token: it is not a regular file; the tokens stay as they were\n$/,
      );
      t.equal(await statusWith(t, program.port, 'old'), 200);
      rmSync(file);
      writeFileSync(file, `old\nnew-${round}\n`);
      program.send('SIGHUP');
      await program.says('stderr', /token: accepts 2 tokens\n$/);
      t.equal(await statusWith(t, program.port, `new-${round}`), 200);
    }
    t.strictSame(await program.stop('SIGTERM'), DONE);
  },
);

t.test('SIGHUP reports that tokens of the environment cannot be read again', async (t) => {
  const program = await start(t, { cwd: t.testdir(), env: ENV });
  program.send('SIGHUP');
  await program.says('stderr', /PLANT_STORE_TOKEN change only with a restart\n/);
  t.equal(await statusWith(t, program.port, TOKEN), 200);
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
    PLANT_STORE_MAX_BUFFERED: String(FERN.length),
    PLANT_STORE_MAX_CONNECTIONS: '1',
  };
  const cwd = t.testdir({ a: {} });
  const { port, log } = await start(t, { cwd, env });
  t.equal(log, join(cwd, 'a/b/log'));
  const client = await connect(t, port);
  client.send(message({ body: `${FERN} ` }));
  t.match(await client.answer(), { status: 400, body: '"error":413' });
  client.send(message());
  t.match(await client.answer(), { status: 200 });
  const other = await connect(t, port);
  await other.closed;
});
