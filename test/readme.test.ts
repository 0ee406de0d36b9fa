import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';

import { MAX_TOKEN_LENGTH } from '../dist/auth.js';
import { DISCARD } from '../dist/body.js';
import { DEFAULT_LIMITS, MAX_LIMITS, REQUEST_COST } from '../dist/handler.js';
import { CONNECTION_LIMITS, STOPPING } from '../dist/listener.js';
import { MAX_RECORD_BYTES } from '../dist/log/scan.js';
import { openapi } from '../dist/openapi.js';
import { readSettings, settingsHelp } from '../dist/settings.js';
import { FIXED_MIB } from './hostile/floods.js';
import { block, blocks, rows } from './readme.js';
import { run, start } from './system/program.js';

const { scripts } = JSON.parse(readFileSync('package.json', 'utf8')) as {
  scripts: Record<string, string>;
};

/** Runs a command of the README in a folder. */
async function shell(command: string, cwd: string, env: Record<string, string> = {}) {
  const options = { cwd, env: { ...process.env, ...env } };
  const { stdout } = await promisify(execFile)('sh', ['-euc', command], options);
  return stdout;
}

t.test('the first screen starts the service, stores a plant and shows it in the log', async (t) => {
  const [install, curl, cat] = blocks('plant-store', 'sh');
  t.match(install, /^npm ci && npm start\n$/);
  t.equal(scripts.start, 'node dist/server.js');

  const cwd = t.testdir();
  const { url, stdout, log } = await start(t, { cwd });
  const shape = (lines: string) => lines.replace(/ \/.*\/| http:\/\/\S+/g, ' …');
  t.equal(shape(stdout), shape(block('plant-store', 'text')));

  const [head = '', body] = (
    await shell(curl?.replace('http://127.0.0.1:8080', url) ?? '', cwd)
  ).split('\r\n\r\n');
  const [shownHead = '', shownBody] = block('plant-store', 'http').split('\n\n');
  for (const line of shownHead.split('\n')) t.ok(head.split('\r\n').includes(line), line);
  t.equal(`${body}\n`, shownBody);

  t.equal(await shell(cat ?? '', dirname(dirname(log))), block('plant-store', 'jsonl'));
});

t.test('the tests run with the command that the README names', async (t) => {
  t.equal(block('Working on it', 'sh'), 'npm ci && npm test\n');
  t.ok(scripts.test);
  t.match(readFileSync('.ci/run', 'utf8'), /^npm ci && npm test /m);
});

interface Response {
  readonly content: {
    readonly 'application/json': {
      readonly schema: { readonly properties: { readonly error: { readonly enum: number[] } } };
    };
  };
}
const responses = openapi.paths['/plants'].post.responses as unknown as Record<string, Response>;

t.test('the tables of answers hold every failure and no other', async (t) => {
  const shown = rows('Answers')
    .filter(([, status]) => /^\d+$/.test(status ?? ''))
    .map(([, status, error]) => `${status} ${/^\d+$/.test(error ?? '') ? error : status}`);
  const given = Object.entries(responses)
    .filter(([status]) => status !== '200')
    .flatMap(([status, { content }]) =>
      content['application/json'].schema.properties.error.enum.map((error) => `${status} ${error}`),
    );
  t.same([...new Set(shown)].sort(), given.sort());
});

t.test('the table of settings is what --help shows, with the defaults that hold', async (t) => {
  const shown = rows('Settings').slice(1);
  const help = settingsHelp().split('\n');
  t.equal(shown.length, help.length);
  for (const [name = '', fallback = '', about = ''] of shown) {
    const value = fallback.replaceAll('`', '');
    const line = help.find((each) => each.trim().startsWith(`${name.replaceAll('`', '')} `)) ?? '';
    t.ok(line.endsWith(value === '' ? about : `${about} (${value})`), name);
  }
  const faults: string[] = [];
  const settings = readSettings({}, faults);
  t.equal(settings.file, resolve('data/plants.jsonl'));
  t.same(faults, []);
});

t.test('the table of limits names every limit in the code', async (t) => {
  const table = rows('Limits').flat().join('\n');
  const limits = [
    DEFAULT_LIMITS.maxBodyBytes,
    DEFAULT_LIMITS.maxBufferedBytes,
    DEFAULT_LIMITS.bodyTimeoutMs,
    MAX_LIMITS.maxBodyBytes,
    ...Object.values(REQUEST_COST),
    FIXED_MIB,
    CONNECTION_LIMITS.headersTimeout,
    CONNECTION_LIMITS.requestTimeout,
    CONNECTION_LIMITS.keepAliveTimeout,
    CONNECTION_LIMITS.maxHeaderSize,
    ...Object.values(DISCARD),
    MAX_TOKEN_LENGTH,
    MAX_RECORD_BYTES,
    STOPPING.totalMs,
    STOPPING.clientsMs,
  ];
  for (const limit of limits) t.match(table, new RegExp(`\\b${limit}\\b`));
});

t.test('the commands for the operator do what the README says', async (t) => {
  const cwd = t.testdir({ data: { 'plants.jsonl': '{"id":1,"name":"a"}\njunk\n' } });
  const [verify = '', repair = ''] = blocks('The log', 'sh');
  const argsOf = (command: string) => command.trim().split(' ').slice(2);
  t.match(verify, /^node dist\/server\.js verify\n$/);
  t.match(repair, /^node dist\/server\.js repair\n$/);
  t.match(await run(t, { cwd, args: argsOf(verify) }), { code: 1, stdout: /line 2, byte 20: / });
  t.match(await run(t, { cwd, args: argsOf(repair) }), { code: 0, stdout: /damaged-[0-9a-f]+/ });
  t.match(await run(t, { cwd, args: argsOf(verify) }), { code: 0, stdout: /1 plant, 20 bytes/ });
});

t.test('tokens rotate and the log is copied with the commands of the README', async (t) => {
  const cwd = t.testdir();
  const program = await start(t, { cwd });
  const [rotate = '', backup = ''] = blocks('Deployment', 'sh');
  await shell(rotate, cwd, { PID: String(program.pid) });
  const [, added = ''] = readFileSync(`${cwd}/data/token`, 'utf8').trim().split('\n');
  await program.says('stderr', /accepts 2 tokens/);
  const answer = await fetch(`${program.url}/plants`, {
    method: 'POST',
    headers: { authorization: `Bearer ${added}`, 'content-type': 'application/json' },
    body: '{"id":1,"name":"fern"}',
  });
  t.equal(answer.status, 200);
  await shell(backup, cwd);
  t.equal(
    readFileSync(`${cwd}/plants.backup.jsonl`, 'utf8'),
    readFileSync(`${cwd}/data/plants.jsonl`, 'utf8'),
  );
});

t.test('the unit for systemd starts, reloads and stops the program', async (t) => {
  const lines = block('Deployment', 'ini').matchAll(/^(\w+)=(.*)$/gm);
  const unit = new Map([...lines].map(([, key, value]) => [key, value ?? '']));
  t.match(unit.get('ExecStart'), /node \S+\/dist\/server\.js$/);
  t.match(unit.get('ExecReload'), /-HUP/);
  t.ok(Number(unit.get('TimeoutStopSec')) * 1000 > STOPPING.totalMs);

  const cwd = t.testdir();
  const [name = '', path = ''] = (unit.get('Environment') ?? '').split('=');
  const program = await start(t, { cwd, env: { [name]: `${cwd}/${path}` } });
  t.match(program.log, new RegExp(`${path}$`));
  t.same(await program.stop('SIGTERM'), { code: 0, signal: null });
});
