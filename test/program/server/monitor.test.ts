import { once } from 'node:events';
import { statSync } from 'node:fs';
import { connect as connectTo, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { mock } from 'node:test';
import { setImmediate } from 'node:timers/promises';

import t, { type Test } from 'tap';

import { DEFAULT_LIMITS } from '../../../dist/http/limits.js';
import { nodeSystem } from '../../../dist/log/system.js';
import {
  MONITOR_LIMITS,
  startMonitor,
  type Watched,
} from '../../../dist/program/server/monitor.js';
import { connect, exchange, message } from '../../helpers/client.js';
import { scrape } from '../../helpers/metrics.js';
import { inJson, IVY } from '../../helpers/plants.js';
import {
  DONE,
  ENV,
  launchHere,
  untilServing,
  startHere,
  type Program,
} from '../../helpers/program.js';
import { freePort } from '../../helpers/service.js';
import { createGate, isPending, type Gate } from '../../log/support.js';

const SERVING: Watched = {
  check: async () => undefined,
  gauges: async () => ({
    ...{ open: 3, dropped: 2, maxConnections: 10 },
    ...{ bufferedBytes: 250, maxBufferedBytes: 1_000 },
  }),
  stop: new AbortController().signal,
};

/** Starts a monitor of a program that serves. Resolves to the URL of the monitor. */
async function startWatching(watched: Partial<Watched> = {}): Promise<string> {
  const monitor = await startMonitor('127.0.0.1', 0);
  monitor.watch({ ...SERVING, ...watched });
  return monitor.url;
}

/** Connects to a monitor, and sends some bytes. */
function send(t: Test, url: string, bytes: string): Socket {
  const socket = connectTo(Number(new URL(url).port), '127.0.0.1');
  t.teardown(() => socket.destroy());
  socket.write(bytes);
  return socket;
}

async function get(url: string, method = 'GET') {
  const answer = await fetch(url, { method });
  const { status, headers } = answer;
  return { status, headers: Object.fromEntries(headers), body: await answer.text() };
}

const PLAIN = 'text/plain; charset=utf-8';
const PAGES = {
  '/livez': { headers: { 'content-type': PLAIN }, body: /^ok$/ },
  '/readyz': { headers: { 'content-type': PLAIN }, body: /^ok$/ },
  '/metrics': {
    headers: { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' },
    body: /^# HELP /,
  },
};

t.test('a page needs no token, and is found by its path, whatever the query is', async (t) => {
  const url = await startWatching();
  t.match(url, /^http:\/\/127\.0\.0\.1:\d+$/);
  for (const [path, page] of Object.entries(PAGES)) {
    for (const query of ['', '?', '?x=/livez'])
      t.match(await get(`${url}${path}${query}`), { status: 200, ...page });
    const { headers, body } = await get(`${url}${path}`);
    t.equal(Number(headers['content-length']), Buffer.byteLength(body));
    const head = await get(`${url}${path}`, 'HEAD');
    t.match(head, { status: 200, headers: page.headers, body: /^$/ });
    t.ok(Number(head.headers['content-length']) > 0);
  }
  for (const path of ['/', '/livez/', '/LIVEZ', '/constructor'])
    t.match(await get(`${url}${path}`), { status: 404, body: 'not found' });
});

t.test('readiness follows the store, also while the program stops', async (t) => {
  let check = SERVING.check;
  const stopping = new AbortController();
  const url = await startWatching({ check: () => check(), stop: stopping.signal });
  const expectReady = async (status: number, body: string): Promise<void> => {
    t.match(await get(`${url}/readyz`), { status, body: RegExp(`^${body}$`) });
    t.match(await get(`${url}/livez`), { status: 200, body: /^ok$/ });
  };
  const fails = (): Promise<void> => Promise.reject(new Error('secret'));
  check = fails;
  await expectReady(503, 'unavailable');
  check = SERVING.check;
  await expectReady(200, 'ok');
  check = () => setImmediate().then(() => stopping.abort());
  await expectReady(503, 'stopping');
  check = fails;
  await expectReady(503, 'stopping');
});

t.test('a connection to the monitor carries one request', async (t) => {
  let checks = 0;
  const check = async (): Promise<void> => {
    checks++;
  };
  const url = await startWatching({ check });
  const request = 'GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n';
  const received = await text(send(t, url, request.repeat(3)));
  t.equal(received.match(/HTTP\/1\.1 200 OK/g)?.length, 1);
  t.match(received, '\r\nConnection: close\r\n');
  t.equal(checks, 1, 'the pages of the others are not made');
});

t.test('a connection to the monitor is closed after 15 s', async (t) => {
  mock.timers.enable({ apis: ['setTimeout'] });
  t.teardown(() => mock.timers.reset());
  const gate = createGate();
  const url = await startWatching({ check: () => gate.pass() });
  const requests = ['', 'GET /livez HTTP/1.1\r\n', 'GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n'];
  const received = requests.map((bytes) => text(send(t, url, bytes)));
  await gate.reached;
  mock.timers.tick(14_999);
  t.ok(await isPending(Promise.race(received)));
  mock.timers.tick(1);
  t.strictSame(await Promise.all(received), ['', '', '']);
});

t.test('connections to the monitor beyond the maximum are closed at once', async (t) => {
  t.intercept(MONITOR_LIMITS, 'maxConnections', { value: 2 });
  const url = await startWatching();
  const [first, second] = [send(t, url, ''), send(t, url, '')];
  await Promise.all([once(first, 'connect'), once(second, 'connect')]);
  t.equal(await text(send(t, url, '')), '');
  first.write('GET /livez HTTP/1.1\r\nHost: x\r\n\r\n');
  t.match(await text(first), /200 OK/);
  t.match(await get(`${url}/livez`), { status: 200 });
});

/** Starts the program with a monitor. Resolves to the program and the URL of the monitor. */
async function startMonitored(
  t: Test,
  settings = {},
): Promise<Program & { readonly monitor: string }> {
  const env = { ...ENV, PLANT_STORE_MONITOR_PORT: '0', ...settings };
  const program = await startHere(t, { env });
  const [, monitor = ''] = await program.says('stdout', /^monitor: (http:.*)\n/m);
  return Object.assign(program, { monitor });
}

t.test('the counted responses are those that clients got', async (t) => {
  const program = await startMonitored(t);
  const total = (status: number, error: number): string =>
    `plant_store_http_responses_total{status="${status}",error="${error}"}`;
  // These counters exist from the start: a counter that appears with its first event has no rate
  // until the second event.
  const sent: Record<string, number> = {
    [total(200, 0)]: 0,
    [total(500, 500)]: 0,
    [total(503, 503)]: 0,
  };
  const requests = [
    message(),
    message(),
    message({ body: inJson(IVY) }),
    message({ body: '{}' }),
    message({ headers: { Authorization: undefined } }),
    message({ headers: { Expect: 'more' } }),
    Buffer.from('this is not HTTP\r\n\r\n'),
  ];
  for (const request of requests) {
    const { status, body } = await exchange(t, program.port, request);
    const { error = 0 } = JSON.parse(body) as { error?: number };
    const name = total(status, error);
    sent[name] = (sent[name] ?? 0) + 1;
  }
  const samples = await scrape(program.monitor);
  const counted = [...samples].filter(([name]) =>
    name.startsWith('plant_store_http_responses_total'),
  );
  t.strictSame(Object.fromEntries(counted), sent);
  const UNPARSED = 1;
  let measured = 0;
  for (const [name, count] of samples)
    if (name.startsWith('plant_store_http_request_duration_seconds_count')) measured += count;
  t.equal(measured, requests.length - UNPARSED);
  t.equal(samples.get('plant_store_plants_stored_total'), 2);
  t.equal(samples.get('plant_store_commit_duration_seconds_count'), 2);
  t.equal(samples.get('plant_store_commit_failures_total'), 0);
  t.equal(samples.get('plant_store_log_plants'), 2);
  t.equal(samples.get('plant_store_log_size_bytes'), statSync(program.log).size);
});

t.test('requests in flight and connections are counted, also those that end early', async (t) => {
  const program = await startMonitored(t, { PLANT_STORE_MAX_CONNECTIONS: '1' });
  async function untilMetric(name: string, value: number): Promise<void> {
    while ((await scrape(program.monitor)).get(`plant_store_${name}`) !== value);
  }
  const client = await connect(t, program.port);
  client.send(message().subarray(0, -5));
  await t.resolves(untilMetric('http_requests_in_flight', 1));
  const another = await connect(t, program.port);
  await another.closed;
  const samples = await scrape(program.monitor);
  t.ok(samples.get('plant_store_buffered_bytes'));
  t.equal(samples.get('plant_store_connections'), 1);
  t.equal(samples.get('plant_store_connections_limit'), 1);
  t.equal(samples.get('plant_store_buffered_bytes_limit'), DEFAULT_LIMITS.maxBufferedBytes);
  client.socket.destroy();
  for (const name of ['http_requests_in_flight', 'connections', 'buffered_bytes'])
    await t.resolves(untilMetric(name, 0));
  await t.resolves(untilMetric('connections_dropped_total', 1));
});

/** Lets every file that a log opens from now on wait at a gate. */
function holdOpening(t: Test): Gate {
  const gate = createGate();
  const open = nodeSystem.open.bind(nodeSystem);
  const value: typeof open = (...args) => gate.pass().then(() => open(...args));
  t.intercept(nodeSystem, 'open', { value });
  return gate;
}

t.test('the program is starting, ready, and stopping', async (t) => {
  const port = await freePort();
  const monitor = `http://127.0.0.1:${port}`;
  const state = async (): Promise<string> => (await get(`${monitor}/readyz`)).body;
  const opening = holdOpening(t);
  const program = launchHere(t, { env: { ...ENV, PLANT_STORE_MONITOR_PORT: `${port}` } });
  await opening.reached;
  t.match(await get(`${monitor}/readyz`), { status: 503, body: /^starting$/ });
  const starting = await scrape(monitor);
  t.notOk(starting.has('plant_store_connections'));
  t.notOk(starting.has('plant_store_log_plants'));

  opening.open();
  const served = await untilServing(program, ENV.PLANT_STORE_TOKEN);
  t.equal(await state(), 'ok');

  const client = await connect(t, served.port);
  const request = message({ headers: { Expect: '100-continue' } });
  client.send(request.subarray(0, -5));
  t.match(await client.answer(), { status: 100 });
  const ended = served.stop('SIGTERM');
  while ((await state()) !== 'stopping');
  t.equal((await scrape(monitor)).get('plant_store_log_plants'), 0);
  client.send(request.subarray(-5));
  t.match(await client.answer(), { status: 200 });
  t.strictSame(await ended, DONE);
});
