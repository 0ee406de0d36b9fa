import { once } from 'node:events';
import { connect as connectTo, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { setImmediate } from 'node:timers/promises';

import t, { type Test } from 'tap';

import {
  MONITOR_LIMITS,
  startMonitor,
  type Watched,
} from '../../../dist/program/server/monitor.js';
import { hastenTimers } from '../../service.js';

const startHere = () => startMonitor('127.0.0.1', 0);
const succeeds = (): Promise<void> => Promise.resolve();
const fails = (): Promise<void> => Promise.reject(new Error('secret'));
const SERVING: Watched = {
  check: succeeds,
  gauges: async () => ({
    ...{ open: 3, dropped: 2, maxConnections: 10 },
    ...{ bufferedBytes: 250, maxBufferedBytes: 1_000 },
  }),
  stop: new AbortController().signal,
};

/** Starts a monitor of a program that serves. */
async function startServing(watched: Partial<Watched> = {}): Promise<string> {
  const monitor = await startHere();
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

t.test('each page has its path, whatever the query is; HEAD has its head', async (t) => {
  const url = await startServing();
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
  for (const path of ['/', '/livez/', '/LIVEZ', '/plants', '/constructor', '//livez'])
    for (const method of ['GET', 'POST'])
      t.match(await get(`${url}${path}`, method), { status: 404, body: 'not found' });
});

t.test('readiness follows the program and its store, liveness does not', async (t) => {
  const monitor = await startHere();
  const { url } = monitor;
  const isReady = async (status: number, body: string): Promise<void> => {
    t.match(await get(`${url}/readyz`), { status, body: RegExp(`^${body}$`) });
    t.match(await get(`${url}/livez`), { status: 200, body: /^ok$/ });
  };
  await isReady(503, 'starting');
  let check = succeeds;
  const stopping = new AbortController();
  monitor.watch({ ...SERVING, check: () => check(), stop: stopping.signal });
  await isReady(200, 'ok');
  check = fails;
  await isReady(503, 'unavailable');
  check = succeeds;
  await isReady(200, 'ok');

  check = () => setImmediate().then(() => stopping.abort());
  await isReady(503, 'stopping');
  check = fails;
  await isReady(503, 'stopping');
});

t.test('a connection carries one request', async (t) => {
  let checks = 0;
  const check = async (): Promise<void> => {
    checks++;
  };
  const url = await startServing({ check });
  for (const expectation of ['', 'Expect: x\r\n']) {
    const request = `GET /readyz HTTP/1.1\r\nHost: x\r\n${expectation}\r\n`;
    const received = await text(send(t, url, request.repeat(3)));
    t.equal(received.match(/HTTP\/1\.1 200 OK/g)?.length, 1);
    t.match(received, '\r\nConnection: close\r\n');
  }
  t.equal(checks, 2, 'the pages of the others are not made');
});

t.test('a connection is closed when its time is over', async (t) => {
  hastenTimers(t, MONITOR_LIMITS.connectionMs);
  const url = await startServing({ check: () => new Promise(() => undefined) });
  for (const bytes of ['', 'GET /livez HTTP/1.1\r\n', 'GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n'])
    t.equal(await text(send(t, url, bytes)), '');
});

t.test('connections beyond the maximum are closed at once', async (t) => {
  const { url } = await startHere();
  const sockets = Array.from({ length: MONITOR_LIMITS.maxConnections }, () => send(t, url, ''));
  await Promise.all(sockets.map((socket) => once(socket, 'connect')));
  t.equal(await text(send(t, url, '')), '');
  for (const first of sockets.slice(0, 1)) {
    first.write('GET /livez HTTP/1.1\r\nHost: x\r\n\r\n');
    t.match(await text(first), /200 OK/);
  }
  t.match(await get(`${url}/livez`), { status: 200 });
});
