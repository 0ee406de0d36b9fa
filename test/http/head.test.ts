import { createServer } from 'node:http';

import t from 'tap';

import {
  chunk,
  CHUNKED,
  connect,
  exchange,
  expectFailure,
  message,
  TOKEN,
  type Message,
} from '../helpers/client.js';
import { FERN, inJson } from '../helpers/plants.js';
import { listen, serve } from '../helpers/service.js';
import { PARTS } from './parts.js';

t.test('a part of the head decides whether a plant is stored', async (t) => {
  const { port, log } = await serve(t);
  const client = await connect(t, port);
  for (const [about, { request, stored, refused, ...expected }] of Object.entries(PARTS)) {
    for (const value of refused) {
      client.send(message(request(value)));
      const headers = { connection: 'keep-alive' };
      expectFailure(t, await client.answer(), { headers, ...expected }, `${about}: "${value}"`);
    }
    const before = log.size;
    for (const [n, value] of stored.entries()) {
      const body = inJson({ ...FERN, id: BigInt(before + n) });
      client.send(message({ ...request(value), body }));
      t.equal((await client.answer()).status, 200, `${about}: "${value}"`);
    }
    t.equal(log.size, before + stored.length, about);
  }
});

/** A request in a version of HTTP. */
function inVersion(version: string, parts: Message): Buffer {
  return Buffer.from(message(parts).toString().replace('HTTP/1.1', `HTTP/${version}`));
}

t.test('only some header lines may be missing or come twice', async (t) => {
  const { handler } = await serve(t);
  const port = await listen(t, createServer({ requireHostHeader: false }, handler));
  const type = 'application/json';
  const credentials = `Bearer ${TOKEN}`;
  const rows: readonly [error: number, version: string, headers: Message['headers'] & object][] = [
    [400, '1.1', { Host: undefined }],
    [400, '1.1', { Host: ['localhost', 'localhost'] }],
    [400, '1.1', { Host: undefined, host: 'localhost', HOST: 'other' }],
    [200, '1.1', { 'X-Name': 'Host' }],
    [200, '1.0', { Host: undefined }],
    [400, '1.0', { Host: ['localhost', 'other'] }],
    [400, '1.1', { Authorization: [credentials, credentials] }],
    [400, '1.1', { Authorization: credentials, authorization: 'Basic eDp4' }],
    [415, '1.1', { 'Content-Type': undefined }],
    [415, '1.1', { 'Content-Type': [type, ''] }],
    [415, '1.1', { 'Content-Type': type, 'content-type': type }],
    [415, '1.1', { 'Content-Encoding': 'identity', 'CONTENT-ENCODING': 'identity' }],
  ];
  for (const [expected, version, headers] of rows) {
    const { status, body } = await exchange(t, port, inVersion(version, { headers }));
    const { error = status } = JSON.parse(body) as { error?: number };
    t.equal(error, expected, `${version}: ${JSON.stringify(headers)}`);
  }
});

t.test('an expectation in HTTP/1.0 is ignored', async (t) => {
  const { port } = await serve(t);
  const request = inVersion('1.0', { headers: { Expect: '200-ok' } });
  t.equal((await exchange(t, port, request)).status, 200);
});

t.test('a faulty version or framing is refused without waiting for the body', async (t) => {
  const { port, handler } = await serve(t);
  const malformed = { status: 400, headers: { connection: 'close' } };
  for (const [version, coding] of [
    ['0.9', 'chunked'],
    ['2.0', 'chunked'],
    ['1.0', 'chunked'],
    ['1.0', 'gzip, chunked'],
  ] as const) {
    const headers = { ...CHUNKED, Connection: 'keep-alive', 'Transfer-Encoding': coding };
    const request = inVersion(version, { headers, body: '1000\r\nx' });
    expectFailure(t, await exchange(t, port, request), malformed, `${version}, ${coding}`);
  }
  const afterParser = createServer((req, res) => {
    req.resume().on('end', () => handler(Object.assign(req, { body: {} }), res));
  });
  const headers = { ...CHUNKED, Connection: 'keep-alive' };
  const parsed = inVersion('1.0', { headers, body: chunk('') });
  const answer = await exchange(t, await listen(t, afterParser), parsed);
  expectFailure(t, answer, malformed, 'after a body parser has read the body');
});
