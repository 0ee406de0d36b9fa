import { createServer } from 'node:http';
import { createServer as createHttp2Server } from 'node:http2';

import t from 'tap';

import { MAX_HEADER_LINES } from '../../dist/http/memory.js';
import { CHUNKED, connect, exchange, FERN, isFailure, message, type Message } from '../client.js';
import { http2Answer, http2Post, http2Session } from '../http2.js';
import { listen, serve } from '../service.js';

/** A request in another version of HTTP. */
function inVersion(version: string, parts: Message): Buffer {
  return Buffer.from(message(parts).toString().replace('HTTP/1.1', `HTTP/${version}`));
}

const HOSTS = [
  '',
  'plants.example',
  'plants.example:8080',
  '127.0.0.1:80',
  '[::ffff:192.0.2.1]:65535',
  '[v1.fe80:a+b]',
  'a_b~c%C3%A5',
  "!$&'()*+,;=",
];

/** A host with a character that none can have (RFC 3986, section 3.2.2). */
const NOT_HOSTS = Array.from(' /@?#\\"<>^`{|}\u00e9', (character) => `a${character}b`);

t.test('a Host has only the characters of a name or an address with a port', async (t) => {
  const { port, log } = await serve(t);
  const client = await connect(t, port);
  for (const Host of NOT_HOSTS) {
    client.send(message({ headers: { Host } }));
    const answer = await client.answer();
    isFailure(t, answer, { status: 400, headers: { connection: 'keep-alive' } }, `"${Host}"`);
  }
  t.equal(log.size, 0);
  for (const Host of HOSTS) {
    client.send(message({ headers: { Host } }));
    t.equal((await client.answer()).status, 200, `"${Host}"`);
  }
});

t.test('a request must have one Host header, which only HTTP/1.0 may omit', async (t) => {
  const { handler } = await serve(t);
  const port = await listen(t, createServer({ requireHostHeader: false }, handler));
  const rows: readonly [status: number, version: string, headers: Message['headers'] & object][] = [
    [400, '1.1', { Host: undefined }],
    [400, '1.1', { Host: ['localhost', 'localhost'] }],
    [400, '1.1', { Host: undefined, host: 'localhost', HOST: 'other' }],
    [200, '1.1', { 'X-Name': 'Host' }],
    [200, '1.0', { Host: undefined }],
    [400, '1.0', { Host: ['localhost', 'other'] }],
  ];
  for (const [status, version, headers] of rows) {
    const answer = await exchange(t, port, inVersion(version, { headers }));
    t.equal(answer.status, status, `${version}: ${JSON.stringify(headers)}`);
  }
});

const MALFORMED = { status: 400, headers: { connection: 'close' } };

t.test('a version that HTTP/1 does not have is refused without waiting for the body', async (t) => {
  const { port, log } = await serve(t);
  for (const version of ['0.9', '2.0']) {
    const request = inVersion(version, { headers: CHUNKED, body: '1000\r\nx' });
    isFailure(t, await exchange(t, port, request), MALFORMED, version);
  }
  t.equal(log.size, 0);
});

t.test('a transfer coding in HTTP/1.0 is refused, even after a body parser', async (t) => {
  const { handler, log } = await serve(t);
  const afterParser = createServer((req, res) => {
    req.resume().on('end', () => handler(Object.assign(req, { body: {} }), res));
  });
  for (const server of [createServer(handler), afterParser]) {
    const port = await listen(t, server);
    for (const Connection of ['keep-alive', undefined])
      for (const coding of ['chunked', 'gzip, chunked', 'identity, chunked']) {
        const headers = { ...CHUNKED, Connection, 'Transfer-Encoding': coding };
        const client = await connect(t, port);
        client.send(inVersion('1.0', { headers, body: '0\r\n\r\n' }));
        isFailure(t, await client.answer(), MALFORMED, `${coding}, ${Connection ?? 'no option'}`);
        await client.closed;
      }
  }
  t.equal(log.size, 0);
});

t.test('more than one Content-Type or Content-Encoding is refused', async (t) => {
  const { port, log } = await serve(t);
  const type = 'application/json';
  const rows: readonly Message['headers'][] = [
    { 'Content-Type': [type, 'text/plain'] },
    { 'Content-Type': [type, type] },
    { 'Content-Type': [type, ''] },
    { 'Content-Type': type, 'content-type': type },
    { 'Content-Encoding': ['identity', 'gzip'] },
    { 'Content-Encoding': ['identity', 'identity'] },
    { 'Content-Encoding': 'identity', 'CONTENT-ENCODING': 'identity' },
  ];
  for (const headers of rows) {
    const answer = await exchange(t, port, message({ ...(headers && { headers }) }));
    isFailure(t, answer, { status: 400, error: 415 }, JSON.stringify(headers));
  }
  t.equal(log.size, 0);
});

/** A request for a plant with this number of header lines. */
function withLines(count: number): Buffer {
  const fillers = Array<string>(count - 4).fill('X: x');
  const [requestLine = '', ...rest] = message().toString().split('\r\n');
  return Buffer.from([requestLine, ...rest.slice(0, 4), ...fillers, '', FERN].join('\r\n'));
}

t.test(`a request with more than ${MAX_HEADER_LINES} header lines is refused`, async (t) => {
  const { handler, port } = await serve(t);
  isFailure(t, await exchange(t, port, withLines(999)), { status: 431 }, '999 lines');
  // With these values, of which null is the default, node:http keeps more header lines.
  for (const maxHeadersCount of [undefined, 0, -1, null, MAX_HEADER_LINES + 1]) {
    const port = await listen(t, Object.assign(createServer(handler), { maxHeadersCount }));
    const about = `maxHeadersCount ${String(maxHeadersCount)}`;
    const refused = await exchange(t, port, withLines(MAX_HEADER_LINES + 1));
    isFailure(t, refused, { status: 431 }, about);
    t.equal((await exchange(t, port, withLines(MAX_HEADER_LINES))).status, 200, about);
  }
});

t.test('header lines are counted in HTTP/2, too', async (t) => {
  const { handler } = await serve(t);
  const server = createHttp2Server({ maxHeaderListPairs: 1_000 }, handler);
  const session = http2Session(t, await listen(t, server));
  for (const [count, expected] of [
    [MAX_HEADER_LINES, 200],
    [MAX_HEADER_LINES + 1, 431],
    [500, 431],
  ] as const) {
    // Four pseudo-header fields, Authorization and Content-Type are lines, too.
    const others = Array.from({ length: count - 6 }, (_, n) => [`x-${n}`, 'x'] as const);
    const request = http2Post(session, Object.fromEntries(others)).end(FERN);
    t.equal((await http2Answer(request)).status, expected, `${count} lines`);
  }
});
