import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import {
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer as createHttpServer, type IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { createServer, type AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';

import t, { type Test } from 'tap';

import { conforms } from './conformance.js';
import { connect, exchange, FERN, listen, message, selfSigned, TOKEN } from './support.js';
import { LARGE_LOG, launch, run, start, type LaunchOptions } from './system/program.js';

const RECORD = '{"id":7,"name":"Boston fern","tag":"indoor","crc32":1134476476}\n';
const ENV = { PLANT_STORE_TOKEN: TOKEN, PLANT_STORE_FILE: 'plants.jsonl' };
const WELL = { code: 0, signal: null };
const MISUSED = 2;
const FAILED = 1;

/** The status of a plant that is sent with a token. */
async function statusWith(t: Test, port: number, token: string): Promise<number> {
  const bytes = message({ headers: { Authorization: `Bearer ${token}` } });
  return (await exchange(t, port, bytes)).status;
}

/** Checks that the program does not start, and that it says why and nothing else. */
async function endsWith(
  t: Test,
  code: number,
  sentences: readonly string[],
  options: LaunchOptions,
): Promise<void> {
  const ending = await run(t, options);
  t.equal(ending.code, code, 'its code');
  t.equal(ending.stdout, '', 'it says nothing on stdout');
  t.strictSame(
    ending.stderr.split('\n'),
    [...sentences.map((sentence) => `plant-store: ${sentence}`), ''],
    'what it says on stderr',
  );
}

t.test('the first start needs nothing, and no secret reaches a log', async (t) => {
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
  t.strictSame(await program.stop('SIGTERM'), WELL);
  t.notMatch(program.stdout, program.token);
  t.equal(program.stderr, '');
});

t.test('the next start finds the plants, and the same token', async (t) => {
  const cwd = t.testdir({ data: { token: 'the-token\n', 'plants.jsonl': RECORD } });
  const program = await start(t, { cwd });
  t.equal(program.plants, 1);
  t.equal(program.stderr, '');
  t.equal(program.token, 'the-token');
  t.equal(await statusWith(t, program.port, 'the-token'), 200);
  t.equal(readFileSync(program.log, 'utf8'), RECORD, 'it is the same plant');
  t.strictSame(
    readdirSync(join(cwd, 'data'))
      .filter((name) => !name.startsWith('.'))
      .sort(),
    ['plants.jsonl', 'token'],
  );
});

t.test('the log is named by its true path', async (t) => {
  const cwd = t.testdir({ disk: {} });
  symlinkSync('disk', join(cwd, 'data'));
  const { stdout } = await start(t, { cwd });
  t.match(stdout, `\nlog: ${cwd}/disk/plants.jsonl\n`);
});

t.test('--version says which one it is', async (t) => {
  const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
  const { code, stdout, stderr } = await run(t, { args: ['--version'] });
  t.strictSame({ code, stdout, stderr }, { code: 0, stdout: `${version}\n`, stderr: '' });
});

t.test('--help says all there is to know, whatever the settings are', async (t) => {
  const { code, stdout, stderr } = await run(t, {
    args: ['--help'],
    env: { PLANT_STORE_PORT: 'wrong' },
  });
  t.equal(code, 0);
  t.equal(stderr, '');
  const words = ['Usage: plant-store', 'verify', 'repair', '--help', '--version'];
  const more = ['PLANT_STORE_PORT', 'SIGTERM', 'SIGINT', 'SIGHUP'];
  for (const word of [...words, ...more]) t.match(stdout, word);
  for (const line of stdout.split('\n')) t.ok(line.length <= 100, `${line.length} characters wide`);
});

t.test('arguments that are not known are refused', async (t) => {
  for (const args of [['-h'], ['--help', '--version'], ['verify', 'a', 'b'], ['repair', 'a', 'b']])
    await endsWith(t, MISUSED, ['the arguments are not known; see --help'], { args });
});

t.test('all faults of the settings are told at once, and nothing is made', async (t) => {
  const cwd = t.testdir({ token: 'one\n???\n' });
  const env = {
    PLANT_STORE_HOST: '',
    PLANT_STORE_PORT: '80x',
    PLANT_STORE_TOKEN_FILE: 'token',
    PLANT_STORE_TLS_CERT: 'cert',
  };
  const faults = [
    'PLANT_STORE_HOST: must not be empty; leave it out instead',
    'PLANT_STORE_PORT: must be an integer between 0 and 65535',
    'PLANT_STORE_TLS_CERT and PLANT_STORE_TLS_KEY: must be set together',
    `${cwd}/token: line 2 has characters that a bearer token cannot have (RFC 6750)`,
  ];
  await endsWith(t, MISUSED, faults, { cwd, env });
  t.strictSame(readdirSync(cwd), ['token']);
});

t.test('a token file that cannot be read is refused', async (t) => {
  const cwd = t.testdir({ data: { token: {} } });
  const fault = `${cwd}/data/token: illegal operation on a directory (EISDIR)`;
  await endsWith(t, MISUSED, [fault], { cwd });
});

t.test('where it cannot serve, it says why in a sentence', async (t) => {
  const busy = await listen(t, createHttpServer());
  const failures: Record<string, [env: Record<string, string>, sentence: (cwd: string) => string]> =
    {
      'a port in use': [
        { PLANT_STORE_PORT: String(busy) },
        () => `cannot listen on 127.0.0.1, port ${busy}: address already in use (EADDRINUSE)`,
      ],
      'a folder that cannot be made': [
        { PLANT_STORE_FILE: 'file/folder/plants.jsonl' },
        (cwd) => `${cwd}/file/folder/plants.jsonl: not a directory (ENOTDIR)`,
      ],
      'a folder where the log should be': [
        { PLANT_STORE_FILE: 'folder' },
        (cwd) => `${cwd}/folder: illegal operation on a directory (EISDIR)`,
      ],
    };
  for (const [what, [env, sentence]] of Object.entries(failures))
    await t.test(what, async (t) => {
      const cwd = t.testdir({ file: '', folder: {} });
      await endsWith(t, FAILED, [sentence(cwd)], { cwd, env: { ...ENV, ...env } });
    });
});

t.test('a token file that cannot be made is named', async (t) => {
  const cwd = t.testdir({ data: { 'token.new': {} } });
  const sentence = `${cwd}/data/token: illegal operation on a directory (EISDIR)`;
  await endsWith(t, FAILED, [sentence], { cwd });
});

t.test('a log that another program has open is left alone', async (t) => {
  const cwd = t.testdir();
  const first = await start(t, { cwd, env: ENV });
  const reason = 'another process has the log open; one log serves one process at a time';
  await endsWith(t, FAILED, [`${first.log}: ${reason}`], { cwd, env: ENV });
  t.equal(await statusWith(t, first.port, TOKEN), 200);
});

const DAMAGED = `${RECORD}{"id":8,"name":"a fern"} \n`;
const DAMAGE = 'line 2, byte 64: it is not a record, or not the one that was written';

t.test('a damaged log is left as it is, and the operator is told what to do', async (t) => {
  const cwd = t.testdir({ 'plants.jsonl': DAMAGED });
  const sentences = [
    `${cwd}/plants.jsonl: line 2, at byte 64: it is not a record, or not the one that was written`,
    'nothing was changed; the command verify lists all damaged lines, repair moves them aside',
  ];
  await endsWith(t, FAILED, sentences, { cwd, env: ENV });
  t.equal(readFileSync(join(cwd, 'plants.jsonl'), 'utf8'), DAMAGED);
});

t.test(
  'a log that ends in the middle of a plant is mended, and nothing is thrown away',
  async (t) => {
    const torn = '{"id":8,"name":"a f';
    const cwd = t.testdir({ 'plants.jsonl': RECORD + torn });
    const program = await start(t, { cwd, env: ENV });
    t.equal(program.plants, 1);
    t.equal(readFileSync(program.log, 'utf8'), RECORD);
    const [, aside = ''] =
      /^plant-store: .+: moved 19 bytes .+ to (.+)\n$/.exec(program.stderr) ?? [];
    t.equal(readFileSync(aside, 'utf8'), torn);
  },
);

t.test('verify tells what is in a log, and changes nothing', async (t) => {
  const logs: Record<string, [content: string, code: number, ...lines: string[]]> = {
    whole: [RECORD, 0, 'FILE: 1 plant, 64 bytes, 0 damaged lines'],
    damaged: [DAMAGED, FAILED, DAMAGE, 'FILE: 1 plant, 90 bytes, 1 damaged line'],
    torn: [
      `${RECORD}{"id":8`,
      0,
      'FILE: 1 plant, 71 bytes, 0 damaged lines',
      'after the last line, 7 bytes of a write under way or torn',
    ],
  };
  for (const [what, [content, expectedCode, ...lines]] of Object.entries(logs)) {
    const args = what === 'whole' ? ['verify'] : ['verify', 'plants.jsonl'];
    const cwd = t.testdir({ 'plants.jsonl': content });
    const path = join(cwd, 'plants.jsonl');
    const { code, stdout, stderr } = await run(t, { args, cwd, env: ENV });
    t.strictSame(stdout.replaceAll(path, 'FILE').split('\n'), [...lines, ''], what);
    t.strictSame({ code, stderr }, { code: expectedCode, stderr: '' }, what);
    t.equal(readFileSync(path, 'utf8'), content, what);
    t.strictSame(readdirSync(cwd), ['plants.jsonl'], what);
  }
});

t.test('repair moves damaged lines aside, and the program starts again', async (t) => {
  const cwd = t.testdir({ 'plants.jsonl': DAMAGED });
  const path = join(cwd, 'plants.jsonl');
  const { code, stdout, stderr } = await run(t, { args: ['repair'], cwd, env: ENV });
  const [, kept, moved, aside = ''] =
    /^.+: kept (\d) plants?, moved (\d) .+ to (.+)\n$/.exec(stdout) ?? [];
  t.strictSame({ code, stderr, kept, moved }, { code: 0, stderr: '', kept: '1', moved: '1' });
  t.equal(readFileSync(path, 'utf8') + readFileSync(aside, 'utf8'), DAMAGED);
  t.equal((await start(t, { cwd, env: ENV })).plants, 1);
});

t.test('there is nothing to verify or to repair where no log is, or none is damaged', async (t) => {
  const cwd = t.testdir({ 'plants.jsonl': RECORD, folder: {} });
  const failures: Record<string, [args: string[], sentence: string]> = {
    'no log to verify': [['verify', 'none'], 'none: no such file or directory (ENOENT)'],
    'no damage': [['repair'], 'plants.jsonl: no line is damaged; nothing was changed'],
    'a folder to verify': [['verify', 'folder'], 'folder: it is not a regular file'],
    'a pipe to verify': [['verify', 'pipe'], 'pipe: it is not a regular file'],
    'a pipe to repair': [['repair', 'pipe'], 'pipe: it is not a regular file'],
  };
  execFileSync('mkfifo', [join(cwd, 'pipe')]);
  for (const [what, [args, sentence]] of Object.entries(failures))
    await t.test(what, (t) => endsWith(t, FAILED, [`${cwd}/${sentence}`], { args, cwd, env: ENV }));
  t.strictSame(readdirSync(cwd).toSorted(), ['folder', 'pipe', 'plants.jsonl']);
  for (const command of ['verify', 'repair'])
    await endsWith(t, MISUSED, ['PLANT_STORE_FILE: must not be empty; leave it out instead'], {
      args: [command],
      cwd,
      env: { PLANT_STORE_FILE: ' ', PLANT_STORE_PORT: 'is not looked at' },
    });
});

t.test('every token is accepted, wherever they come from', async (t) => {
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

t.test('SIGHUP makes it read the token file again', async (t) => {
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
  t.strictSame(await program.stop('SIGTERM'), WELL);
});

t.test('the tokens stay as they were if the token file is bad, and it says so', async (t) => {
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
  t.notOk(readdirSync(join(cwd, 'data')).includes('token'), 'none is made');
  t.strictSame(await program.stop('SIGTERM'), WELL);
});

t.test('SIGHUP changes nothing where the tokens are not in a file', async (t) => {
  const program = await start(t, { cwd: t.testdir(), env: ENV });
  program.send('SIGHUP');
  t.equal(await statusWith(t, program.port, TOKEN), 200);
  t.strictSame(await program.stop('SIGTERM'), WELL);
  t.equal(program.stderr, '');
});

t.test('it serves on, whether or not anybody reads what it writes', async (t) => {
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
  t.strictSame(await program.ended, WELL);
});

async function freePort(): Promise<number> {
  const server = createServer();
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** A second passes whenever somebody looks at the clock. */
const SLOW = 'let now = 0; performance.now = () => (now += 1000);';

t.test('it tells how far it is while it reads a large log', async (t) => {
  for (const args of [['verify'], []]) {
    const cwd = t.testdir({ 'plants.jsonl': LARGE_LOG });
    const program = launch(t, { args, cwd, env: ENV, preload: SLOW });
    await program.says('stdout', /2000 plants|plants: 2000/);
    const lines = program.stderr.trimEnd().split('\n');
    const progress = lines.map((line) =>
      Number(/^plant-store: reading .+: (\d+) %$/.exec(line)?.[1]),
    );
    t.ok(progress.length > 2, progress.join(', '));
    t.strictSame(
      progress,
      [...progress].sort((a, b) => a - b),
    );
    t.equal(progress.at(-1), 100);
  }
});

t.test('HTTPS is served with a certificate and its key', async (t) => {
  const { cert, key } = selfSigned();
  const cwd = t.testdir({ cert, key });
  const env = { ...ENV, PLANT_STORE_TLS_CERT: 'cert', PLANT_STORE_TLS_KEY: 'key' };
  const program = await start(t, { cwd, env });
  t.equal(program.url, `https://127.0.0.1:${program.port}`);
  const req = request(`${program.url}/plants`, {
    method: 'POST',
    ca: cert,
    servername: 'localhost',
    headers: { Authorization: `Bearer ${TOKEN}`, 'Content-Type': 'application/json' },
  });
  const [res] = (await once(req.end(FERN), 'response')) as [IncomingMessage];
  const { statusCode: status = 0, headers } = res;
  conforms({ status, headers, body: await text(res) });
  t.equal(status, 200);
  t.equal(readFileSync(program.log, 'utf8'), RECORD);
  t.strictSame(await program.stop('SIGTERM'), WELL);
});

const hasIPv6 = Object.values(networkInterfaces())
  .flat()
  .some((each) => each?.address === '::1');

t.test('it listens where it is told to', { skip: !hasIPv6 }, async (t) => {
  const env = { ...ENV, PLANT_STORE_HOST: '::1' };
  const { url, port } = await start(t, { cwd: t.testdir(), env });
  t.equal(url, `http://[::1]:${port}`);
  await t.rejects(connect(t, port), { code: 'ECONNREFUSED' });
});

t.test('it does what the settings say', async (t) => {
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
