import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';

import { MAX_TOKEN_LENGTH } from '../dist/http/auth.js';
import {
  DEFAULT_LIMITS,
  DRAIN,
  MAX_LIMITS,
  MAX_PENDING_REFUSALS,
  REQUEST_COST,
} from '../dist/http/limits.js';
import { CONNECTION_LIMITS, IDLE_MS, STOPPING } from '../dist/program/listener.js';
import { MAX_RECORD_BYTES } from '../dist/log/scan.js';
import { openapi } from '../dist/http/openapi.js';
import { REPORT_RATE } from '../dist/report.js';
import { readSettings, settingsHelp } from '../dist/program/settings.js';
import { conforms } from './conformance.js';
import { FIXED_MIB, TLS_KIB } from './hostile/floods.js';
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

const { responses } = openapi.paths['/plants'].post;

t.test('the tables of answers hold every failure and no other', async (t) => {
  const shown = rows('Answers')
    .filter(([, status]) => /^\d+$/.test(status ?? ''))
    .map(([, status, error]) => `${status} ${/^\d+$/.test(error ?? '') ? error : status}`);
  const given = Object.entries(responses).flatMap(([status, { content }]) =>
    Object.values(content['application/json'].examples ?? {}).map(
      ({ value }) => `${status} ${value.error}`,
    ),
  );
  t.same([...new Set(shown)].sort(), [...new Set(given)].sort());
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

t.test('the table of answers names the headers that come with each', async (t) => {
  const shown = rows('Answers').flatMap(([, status = '', header = '']) => {
    const [, name] = /^`([\w-]+)(?:: .+)?`$/.exec(header) ?? [];
    return /^\d+$/.test(status) && name !== undefined ? [`${status} ${name}`] : [];
  });
  const given = Object.entries(responses).flatMap(([status, { headers = {} }]) =>
    Object.entries(headers)
      .filter(([, header]) => (header as { required: boolean }).required)
      .map(([name]) => `${status} ${name}`),
  );
  t.strictSame(shown, given);
});

t.test('the table of options has the defaults that hold', async (t) => {
  const defaults = rows('Embedding').map(([name, value]) => [name, value].join(' '));
  for (const [name, value] of Object.entries(DEFAULT_LIMITS))
    t.ok(defaults.includes(`\`${name}\` \`${value}\``), name);
});

t.test('the table of limits has every limit in the code, and no other', async (t) => {
  const { maxConnections } = readSettings({}, []);
  const [, ...shown] = rows('Limits');
  t.strictSame(shown, [
    ['body', `${DEFAULT_LIMITS.maxBodyBytes} bytes; can be set up to ${MAX_LIMITS.maxBodyBytes}`],
    [
      'memory held for requests',
      `${DEFAULT_LIMITS.maxBufferedBytes} bytes; a request counts as ${REQUEST_COST.bodyTimes} times its body, at least ${REQUEST_COST.minBytes}`,
    ],
    ['refusals that clients have not taken', `${MAX_PENDING_REFUSALS}; then connections are cut`],
    ['time for a body, or to take an answer', `${DEFAULT_LIMITS.bodyTimeoutMs} ms`],
    ['time for a TLS handshake', `${CONNECTION_LIMITS.handshakeTimeout} ms`],
    ['time for the head of a request', `${CONNECTION_LIMITS.headersTimeout} ms`],
    ['time for a whole request', `${CONNECTION_LIMITS.requestTimeout} ms`],
    ['idle connection', `${IDLE_MS} to ${2 * IDLE_MS} ms`],
    ['header section', `${CONNECTION_LIMITS.maxHeaderSize} bytes`],
    ['connections', `${maxConnections}; more are closed at once`],
    ['token', `${MAX_TOKEN_LENGTH} characters`],
    ['rest of a refused body that is read over', `${DRAIN.maxBytes} bytes, ${DRAIN.timeoutMs} ms`],
    ['stopping', `${STOPPING.totalMs} ms, of them ${STOPPING.clientsMs} ms for the clients`],
    [
      'reports of faults and of overload',
      `${REPORT_RATE.count} in ${REPORT_RATE.periodMs} ms; the rest is counted`,
    ],
    ['a line of the log', `${MAX_RECORD_BYTES} bytes`],
    // test/log/id-index.test.ts holds the index to it.
    ['memory for the index', '16 bytes a slot, at most 40 bytes a plant'],
    [
      'memory of the program in a flood',
      `what is held for requests, the index, and ${FIXED_MIB} MiB; with TLS, ${TLS_KIB} KiB more for each connection; with a larger body limit, 60 times it more`,
    ],
  ]);
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
  const { status, headers } = answer;
  conforms({ status, headers: Object.fromEntries(headers), body: await answer.text() });
  t.equal(status, 200);
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
