import { appendFileSync } from 'node:fs';

import t, { type Test } from 'tap';

import { anyAnswer, connect, exchange, FERN, message, TOKEN } from '../client.js';
import { scrape } from '../metrics.js';
import { failsToRun, launch, serving, start, type LaunchOptions, type Program } from './program.js';
import { until } from '../postgres/cluster.js';
import { freePort } from '../service.js';

const ENV = { PLANT_STORE_TOKEN: TOKEN, PLANT_STORE_FILE: 'plants.jsonl' };

interface Monitored extends Program {
  readonly monitor: string;
}

async function startMonitored(t: Test, options: LaunchOptions = {}): Promise<Monitored> {
  const env = { ...ENV, PLANT_STORE_MONITOR_PORT: '0', ...options.env };
  const program = await start(t, { cwd: t.testdir(), ...options, env });
  const [, monitor = ''] = await program.says('stdout', /^monitor: (http:.*)\n/m);
  return Object.assign(program, { monitor });
}

/** The page of a monitor: its status and its content. */
async function page(monitor: string, path: string): Promise<[status: number, body: string]> {
  const answer = await fetch(`${monitor}${path}`);
  return [answer.status, await answer.text()];
}

t.test('there is no monitor unless it is configured', async (t) => {
  const program = await start(t, { cwd: t.testdir(), env: ENV });
  t.notMatch(program.stdout, /^monitor/m);
  for (const path of ['/metrics', '/livez', '/readyz']) {
    const headers = { Authorization: undefined };
    const without = message({ method: 'GET', target: path, headers, body: '' });
    t.equal((await exchange(t, program.port, without)).status, 401, path);
    const withToken = message({ method: 'GET', target: path, body: '' });
    t.equal((await exchange(t, program.port, withToken)).status, 404, path);
  }
});

t.test('the responses that are counted are those that clients got', async (t) => {
  const program = await startMonitored(t);
  const sent: Record<string, number> = {};
  const requests = [
    message(),
    message(),
    message({ body: FERN.replace('Boston', 'Sword') }),
    message({ body: FERN.replace('7', '8') }),
    message({ body: '{}' }),
    message({ body: 'not JSON' }),
    message({ headers: { Authorization: undefined } }),
    message({ headers: { Authorization: 'Bearer wrong' } }),
    message({ target: '/elsewhere' }),
    message({ method: 'GET' }),
    message({ headers: { 'Content-Type': 'text/plain' } }),
    message({ headers: { Expect: 'more' } }),
    message({ headers: { 'Content-Length': '2000000' }, body: '' }),
    message({ headers: { 'X-Long': 'x'.repeat(20_000) } }),
    message({ headers: { 'Content-Length': 'x' } }),
    Buffer.from('this is not HTTP\r\n\r\n'),
    Buffer.from('CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n'),
  ];
  for (const request of requests) {
    const { status, body } = await exchange(t, program.port, request);
    const { error = 0 } = JSON.parse(body) as { error?: number };
    const name = `plant_store_http_responses_total{status="${status}",error="${error}"}`;
    sent[name] = (sent[name] ?? 0) + 1;
  }
  const samples = await scrape(program.monitor);
  const counted = [...samples].filter(
    ([name, count]) => name.startsWith('plant_store_http_responses_total') && count > 0,
  );
  t.strictSame(Object.fromEntries(counted), sent);
  const UNPARSED = 4;
  t.equal(
    samples.get('plant_store_http_request_duration_seconds_count'),
    requests.length - UNPARSED,
  );
  t.equal(samples.get('plant_store_plants_stored_total'), 2);
  t.equal(samples.get('plant_store_commit_duration_seconds_count'), 2);
  t.equal(samples.get('plant_store_commit_failures_total'), 0);
  t.equal(samples.get('plant_store_log_plants'), 2);
});

t.test('connections are counted, and those that were too many', async (t) => {
  const program = await startMonitored(t, { env: { PLANT_STORE_MAX_CONNECTIONS: '2' } });
  const clients = [await connect(t, program.port), await connect(t, program.port)];
  const dropped = await connect(t, program.port);
  await dropped.closed;
  const samples = await scrape(program.monitor);
  t.equal(samples.get('plant_store_connections'), clients.length);
  t.equal(samples.get('plant_store_connections_limit'), 2);
  t.equal(samples.get('plant_store_connections_dropped_total'), 1);
});

/** The program opens no file before SIGUSR2. */
const WAITS = `
import files from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
const { open } = files;
const keepAlive = setInterval(() => undefined, 1000);
const mayOpen = new Promise((resolve) => process.once('SIGUSR2', resolve));
files.open = async (...args) => {
  await mayOpen;
  clearInterval(keepAlive);
  return open(...args);
};
syncBuiltinESMExports();`;

t.test('the program is starting, ready, and stopping', async (t) => {
  const port = await freePort();
  const monitor = `http://127.0.0.1:${port}`;
  const program = launch(t, {
    cwd: t.testdir(),
    env: { ...ENV, PLANT_STORE_MONITOR_PORT: `${port}` },
    preload: WAITS,
  });
  await until(() =>
    fetch(monitor).then(
      () => true,
      () => false,
    ),
  );
  t.strictSame(await page(monitor, '/readyz'), [503, 'starting']);
  t.strictSame(await page(monitor, '/livez'), [200, 'ok']);
  const starting = await scrape(monitor);
  t.equal(starting.get('plant_store_connections'), 0);
  t.notOk(starting.has('plant_store_log_plants'));

  program.send('SIGUSR2');
  const served = await serving(program, TOKEN);
  t.strictSame(await page(monitor, '/readyz'), [200, 'ok']);

  const client = await connect(t, served.port);
  const request = message({ headers: { Expect: '100-continue' } });
  client.send(request.subarray(0, -5));
  t.match(await client.answer(), { status: 100 });
  const ended = served.stop('SIGTERM');
  await until(async () => (await page(monitor, '/readyz'))[0] === 503);
  t.strictSame(await page(monitor, '/readyz'), [503, 'stopping']);
  t.strictSame(await page(monitor, '/livez'), [200, 'ok']);
  t.equal((await scrape(monitor)).get('plant_store_log_plants'), 0);
  client.send(request.subarray(-5));
  t.match(await client.answer(), { status: 200 });
  t.strictSame(await ended, { code: 0, signal: null });
});

t.test('a program with a poisoned log is stopping', async (t) => {
  const program = await startMonitored(t);
  const client = await connect(t, program.port);
  const request = message({ headers: { Expect: '100-continue' } });
  client.send(request.subarray(0, -5));
  t.match(await client.answer(), { status: 100 });
  appendFileSync(program.log, 'by someone else\n');
  t.equal((await exchange(t, program.port, message())).status, 503);
  t.strictSame(await page(program.monitor, '/readyz'), [503, 'stopping']);
  t.strictSame(await page(program.monitor, '/livez'), [200, 'ok']);
  const samples = await scrape(program.monitor);
  t.equal(samples.get('plant_store_commit_failures_total'), 1);
  t.equal(samples.get('plant_store_http_responses_total{status="503",error="503"}'), 1);
  t.equal(samples.get('plant_store_plants_stored_total'), 0);
  client.socket.destroy();
  t.strictSame(await program.ended, { code: 1, signal: null });
});

t.test('the program does not wait for scrapers when it stops', async (t) => {
  const program = await startMonitored(t);
  const clients = [await connect(t, Number(new URL(program.monitor).port), anyAnswer)];
  for (const client of clients) client.send('GET /metrics HTTP/1.1\r\n');
  t.strictSame(await program.stop('SIGTERM'), { code: 0, signal: null });
});

t.test('a port in use is reported with its setting', async (t) => {
  const { port } = await start(t, { cwd: t.testdir(), env: ENV });
  const sentence = `PLANT_STORE_MONITOR_PORT: cannot listen on 127.0.0.1, port ${port}: address already in use (EADDRINUSE)`;
  const env = { ...ENV, PLANT_STORE_MONITOR_PORT: `${port}` };
  await failsToRun(t, 1, [sentence], { cwd: t.testdir(), env });
});
