import { appendFileSync } from 'node:fs';

import t, { type Test } from 'tap';

import { HANG_MS } from '../../dist/log/commit.js';
import { nodeSystem } from '../../dist/log/files.js';
import { chunkedMessage, connect, exchange, FERN, message } from '../client.js';
import { scrape } from '../metrics.js';
import { until } from '../postgres/cluster.js';
import { launchHere, startHere } from '../program/here.js';
import { freePort } from '../service.js';
import { createDisk, ENV, hasten, serving, start, type Program } from './program.js';

interface Monitored extends Program {
  readonly monitor: string;
}

async function monitored(program: Promise<Program>): Promise<Monitored> {
  const started = await program;
  const [, monitor = ''] = await started.says('stdout', /^monitor: (http:.*)\n/m);
  return Object.assign(started, { monitor });
}

const MONITORED = { ...ENV, PLANT_STORE_MONITOR_PORT: '0' };

function startMonitored(t: Test, settings = {}): Promise<Monitored> {
  return monitored(startHere(t, { env: { ...MONITORED, ...settings } }));
}

/** The page of a monitor: its status and its content. */
async function page(monitor: string, path: string): Promise<[status: number, body: string]> {
  const answer = await fetch(`${monitor}${path}`);
  return [answer.status, await answer.text()];
}

t.test('there is no monitor unless it is configured', async (t) => {
  const program = await startHere(t);
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
  let measured = 0;
  for (const [name, count] of samples)
    if (name.startsWith('plant_store_http_request_duration_seconds_count')) measured += count;
  t.equal(measured, requests.length - UNPARSED);
  t.equal(samples.get('plant_store_plants_stored_total'), 2);
  t.equal(samples.get('plant_store_commit_duration_seconds_count'), 2);
  t.equal(samples.get('plant_store_commit_failures_total'), 0);
  t.equal(samples.get('plant_store_log_plants'), 2);
});

t.test('a request that its client aborts does not stay in flight', async (t) => {
  const program = await startMonitored(t);
  const reaches = (name: string, value: number): Promise<void> =>
    until(async () => (await scrape(program.monitor)).get(name) === value);
  const name = 'plant_store_http_requests_in_flight';
  for (const bytes of [message().subarray(0, -5), chunkedMessage(FERN).subarray(0, -5)]) {
    const client = await connect(t, program.port);
    client.send(bytes);
    await t.resolves(reaches(name, 1));
    t.ok((await scrape(program.monitor)).get('plant_store_buffered_bytes'));
    client.socket.destroy();
    await t.resolves(reaches(name, 0));
  }
  await t.resolves(reaches('plant_store_buffered_bytes', 0));
});

t.test('connections are counted, and those that were too many', async (t) => {
  const program = await startMonitored(t, { PLANT_STORE_MAX_CONNECTIONS: '2' });
  const clients = [await connect(t, program.port), await connect(t, program.port)];
  const dropped = await connect(t, program.port);
  await dropped.closed;
  const samples = await scrape(program.monitor);
  t.equal(samples.get('plant_store_connections'), clients.length);
  t.equal(samples.get('plant_store_connections_limit'), 2);
  t.equal(samples.get('plant_store_connections_dropped_total'), 1);
});

t.test('the program is starting, ready, and stopping', async (t) => {
  const port = await freePort();
  const monitor = `http://127.0.0.1:${port}`;
  let letOpen = (): void => undefined;
  const mayOpen = new Promise<void>((resolve) => (letOpen = resolve));
  const open = nodeSystem.open.bind(nodeSystem);
  t.intercept(nodeSystem, 'open', {
    value: async (...args: Parameters<typeof open>) => {
      await mayOpen;
      return open(...args);
    },
  });
  const program = launchHere(t, { env: { ...ENV, PLANT_STORE_MONITOR_PORT: `${port}` } });
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

  letOpen();
  const served = await serving(program, ENV.PLANT_STORE_TOKEN);
  t.strictSame(await page(monitor, '/readyz'), [200, 'ok']);

  const client = await connect(t, served.port);
  const request = message({ headers: { Expect: '100-continue' } });
  client.send(request.subarray(0, -5));
  t.match(await client.answer(), { status: 100 });
  const ended = served.stop('SIGTERM');
  await until(async () => (await page(monitor, '/readyz'))[0] === 503);
  t.strictSame(await page(monitor, '/readyz'), [503, 'stopping']);
  t.strictSame(await page(monitor, '/livez'), [200, 'ok']);
  const stopping = await scrape(monitor);
  t.equal(stopping.get('plant_store_log_plants'), 0);
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
  t.strictSame(await program.ended, { code: 4, signal: null });
});

t.test('a program whose disk hangs is unavailable until the disk responds', async (t) => {
  const disk = createDisk(t);
  const env = { ...MONITORED, ...disk.env };
  const preload = disk.preload + hasten(HANG_MS, HANG_MS, 10);
  const program = await monitored(start(t, { cwd: disk.cwd, env, preload }));
  await disk.hang(program);
  const statusOf = async (id: number): Promise<number> => {
    const plant = message({ body: `{"id":${id},"name":"fern"}` });
    return (await exchange(t, program.port, plant)).status;
  };
  t.equal(await statusOf(1), 503, 'a plant that waits for the disk');
  t.equal(await statusOf(2), 503, 'the next one');
  t.strictSame(await page(program.monitor, '/readyz'), [503, 'unavailable']);
  t.strictSame(await page(program.monitor, '/livez'), [200, 'ok']);

  disk.respond();
  await until(async () => (await page(program.monitor, '/readyz'))[0] === 200);
  await program.says('stderr', /stored again\n$/);
  t.equal(
    program.stderr,
    `plant-store: ${program.log}: a write has not returned for 10 s; plants are refused until it does\n` +
      `plant-store: ${program.log}: the write has returned; plants are stored again\n`,
  );
  const stored = await scrape(program.monitor);
  t.equal(stored.get('plant_store_log_plants'), 1);
  for (const id of [1, 2]) t.equal(await statusOf(id), 200);
  const samples = await scrape(program.monitor);
  t.equal(samples.get('plant_store_plants_stored_total'), 2);
  t.equal(samples.get('plant_store_commit_failures_total'), 0);
  t.strictSame(await program.stop('SIGTERM'), { code: 0, signal: null });
});
