import { execFile } from 'node:child_process';
import { channel } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { connect as connectTo } from 'node:net';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';

import t from 'tap';

import { MONITOR_LIMITS, startMonitor, type Watched } from '../../dist/program/monitor/monitor.js';
import { scrape } from '../metrics.js';
import { hastenTimers } from '../service.js';

const PATHS = ['/livez', '/readyz', '/metrics'];
const OPTIONS = { host: '127.0.0.1', port: 0, maxConnections: 10, maxBufferedBytes: 1_000 };
const listener = { connections: async () => ({ open: 3, dropped: 2 }) };
const SERVING = {
  listener,
  bufferedBytes: () => 250,
  notAfter: () => undefined,
  stop: new AbortController().signal,
};

async function get(url: string, method = 'GET') {
  const answer = await fetch(url, { method });
  const { status, headers } = answer;
  return { status, headers: Object.fromEntries(headers), body: await answer.text() };
}

t.test('each page has its path, whatever the query is', async (t) => {
  const monitor = await startMonitor(OPTIONS);
  monitor.watch(SERVING);
  t.match(monitor.url, /^http:\/\/127\.0\.0\.1:\d+$/);
  for (const query of ['', '?', '?x=/livez']) {
    t.match(await get(`${monitor.url}/livez${query}`), { status: 200, body: /^ok$/ });
    t.match(await get(`${monitor.url}/readyz${query}`), { status: 200, body: /^ok$/ });
    t.match(await get(`${monitor.url}/metrics${query}`), {
      status: 200,
      headers: { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' },
      body: /^# HELP /,
    });
  }
  for (const path of ['/', '/livez/', '/LIVEZ', '/plants', '/constructor', '//livez'])
    for (const method of ['GET', 'POST'])
      t.match(await get(`${monitor.url}${path}`, method), { status: 404, body: 'not found' });
});

t.test('HEAD has the head of GET, other methods are not allowed', async (t) => {
  const { url } = await startMonitor(OPTIONS);
  for (const path of PATHS) {
    const { status, headers, body } = await get(`${url}${path}`);
    const head = await get(`${url}${path}`, 'HEAD');
    t.equal(head.status, status);
    t.equal(head.headers['content-type'], headers['content-type']);
    t.equal(Number(headers['content-length']), Buffer.byteLength(body));
    t.ok(Number(head.headers['content-length']) > 0);
    t.equal(head.body, '');
    for (const method of ['POST', 'PUT', 'DELETE', 'OPTIONS'])
      t.match(await get(`${url}${path}`, method), { status: 405, headers: { allow: 'GET, HEAD' } });
  }
});

t.test('readiness follows the program and its store, liveness does not', async (t) => {
  const monitor = await startMonitor(OPTIONS);
  const isReady = async (status: number, body: string): Promise<void> => {
    t.match(await get(`${monitor.url}/readyz`), { status, body: RegExp(`^${body}$`) });
    t.match(await get(`${monitor.url}/livez`), { status: 200, body: /^ok$/ });
  };
  await isReady(503, 'starting');
  let check: NonNullable<Watched['check']> = async () => undefined;
  const stopping = new AbortController();
  monitor.watch({ ...SERVING, check: () => check(), stop: stopping.signal });
  await isReady(200, 'ok');
  check = () => Promise.reject(new Error('secret'));
  await isReady(503, 'unavailable');
  check = () => {
    throw new Error('secret');
  };
  await isReady(503, 'unavailable');
  check = async () => undefined;
  await isReady(200, 'ok');

  let settle = (): void => undefined;
  const checked = new Promise<void>((resolve) => {
    check = () => {
      resolve();
      return new Promise((done) => (settle = done));
    };
  });
  const pending = get(`${monitor.url}/readyz`);
  await checked;
  stopping.abort();
  settle();
  t.match(await pending, { status: 503, body: /^stopping$/ }, 'a check that began before');
  check = () => Promise.reject(new Error('not called'));
  await isReady(503, 'stopping');
});

t.test('the gauges have the values of the program', async (t) => {
  const monitor = await startMonitor(OPTIONS);
  const before = await scrape(monitor.url);
  t.equal(before.get('plant_store_ready'), 0);
  t.equal(before.get('plant_store_connections'), 0);
  t.equal(before.get('plant_store_connections_limit'), 10);
  t.equal(before.get('plant_store_buffered_bytes'), 0);
  t.equal(before.get('plant_store_buffered_bytes_limit'), 1_000);
  const absent = [
    'plant_store_log_plants',
    'plant_store_tls_certificate_not_after_timestamp_seconds',
  ];
  for (const name of absent) t.notOk(before.has(name), name);
  const notAfter = (): number => 4_102_444_800_000;
  monitor.watch({ ...SERVING, notAfter, log: { size: 7, bytes: 430 } });
  const serving = await scrape(monitor.url);
  t.equal(serving.get('plant_store_ready'), 1);
  t.equal(serving.get('plant_store_connections'), 3);
  t.equal(serving.get('plant_store_connections_dropped_total'), 2);
  t.equal(serving.get('plant_store_buffered_bytes'), 250);
  t.equal(serving.get('plant_store_log_plants'), 7);
  t.equal(serving.get('plant_store_log_size_bytes'), 430);
  const expiry = serving.get('plant_store_tls_certificate_not_after_timestamp_seconds');
  t.equal(expiry, 4_102_444_800);
});

t.test(
  'a scrape does not ask the database, and knows what commits and checks showed',
  async (t) => {
    const monitor = await startMonitor(OPTIONS);
    const commits = channel('plant-store:commit');
    const commit = (error?: Error): void =>
      commits.publish({ store: '', plants: 1, durationMs: 1, error });
    const failure = new Error('failed');
    let checks = 0;
    let check = async (): Promise<void> => undefined;
    const counted = (): Promise<void> => {
      checks++;
      return check();
    };
    const stopping = new AbortController();
    const isReady = async (): Promise<number | undefined> =>
      (await scrape(monitor.url)).get('plant_store_ready');
    monitor.watch({ ...SERVING, check: counted, stop: stopping.signal });
    t.equal(await isReady(), 1);
    t.equal(checks, 0);
    commit(failure);
    t.equal(await isReady(), 1, 'a commit may fail because of its plants');
    t.equal(checks, 1);
    check = () => Promise.reject(failure);
    commit(failure);
    t.equal(await isReady(), 0);
    commit(failure);
    t.equal(await isReady(), 0);
    t.equal(checks, 2, 'nothing is asked that is known');
    commit();
    t.equal(await isReady(), 1);
    await get(`${monitor.url}/readyz`);
    t.equal(await isReady(), 0);
    check = async () => undefined;
    await get(`${monitor.url}/readyz`);
    t.equal(await isReady(), 1);
    t.equal(checks, 4);
    stopping.abort();
    t.equal(await isReady(), 0);
  },
);

t.test('a scrape checks a log, which costs nothing', async (t) => {
  const monitor = await startMonitor(OPTIONS);
  let check = async (): Promise<void> => undefined;
  monitor.watch({ ...SERVING, check: () => check(), log: { size: 7, bytes: 430 } });
  t.equal((await scrape(monitor.url)).get('plant_store_ready'), 1);
  check = () => Promise.reject(new Error('a write hangs'));
  t.equal((await scrape(monitor.url)).get('plant_store_ready'), 0);
});

t.test('a connection carries one request', async (t) => {
  const monitor = await startMonitor(OPTIONS);
  const { url } = monitor;
  let checks = 0;
  const check = async (): Promise<void> => {
    checks++;
  };
  monitor.watch({ ...SERVING, check });
  for (const expectation of ['', 'Expect: x\r\n']) {
    const socket = connectTo(Number(new URL(url).port), '127.0.0.1');
    socket.write(`GET /readyz HTTP/1.1\r\nHost: x\r\n${expectation}\r\n`.repeat(3));
    const received = await text(socket);
    t.equal(received.match(/HTTP\/1\.1 200 OK/g)?.length, 1);
    t.match(received, '\r\nConnection: close\r\n');
  }
  t.equal(checks, 2, 'the pages of the others are not made');
});

t.test('a connection is closed when its time is over', async (t) => {
  hastenTimers(t, MONITOR_LIMITS.connectionMs);
  const monitor = await startMonitor(OPTIONS);
  monitor.watch({ ...SERVING, check: () => new Promise(() => undefined) });
  const port = Number(new URL(monitor.url).port);
  for (const bytes of ['', 'GET /livez HTTP/1.1\r\n', 'GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n']) {
    const socket = connectTo(port, '127.0.0.1');
    socket.write(bytes);
    t.equal(await text(socket), '');
  }
});

t.test('connections beyond the maximum are closed at once', async (t) => {
  const { url } = await startMonitor(OPTIONS);
  const port = Number(new URL(url).port);
  const connect = async () => {
    const socket = connectTo(port, '127.0.0.1');
    t.teardown(() => socket.destroy());
    await once(socket, 'connect');
    return socket;
  };
  const sockets = await Promise.all(Array.from({ length: MONITOR_LIMITS.maxConnections }, connect));
  const more = await connect();
  t.equal(await text(more), '');
  const [first] = sockets;
  first?.write('GET /livez HTTP/1.1\r\nHost: x\r\n\r\n');
  t.match(await text(first ?? more), /200 OK/);
  t.match(await get(`${url}/livez`), { status: 200 });
});

/** Starts a monitor with a connection, and has nothing else to do. */
const IDLE = `
import { connect } from 'node:net';
import { startMonitor } from ${JSON.stringify(new URL('../../dist/program/monitor/monitor.js', import.meta.url).href)};
const { url } = await startMonitor(${JSON.stringify(OPTIONS)});
const socket = connect(new URL(url).port, '127.0.0.1', () => {
  console.log('connected');
  socket.unref();
});`;

t.test('the monitor does not keep the process alive', async (t) => {
  const args = ['--input-type=module', '--eval', IDLE];
  const { stdout } = await promisify(execFile)(process.execPath, args);
  t.equal(stdout, 'connected\n');
});
