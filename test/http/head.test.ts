import { createServer } from 'node:http';

import t from 'tap';

import { MAX_HEADER_LINES } from '../../dist/http/memory.js';
import { CHUNKED, connect, exchange, FERN, isFailure, message, type Message } from '../client.js';
import { listen, serve } from '../service.js';

/** Values of one part of a request, and the answer that they get. */
interface Part {
  readonly request: (value: string) => Message;
  readonly stored: readonly string[];
  readonly refused: readonly string[];
  readonly status: number;
  /** Default: the status. */
  readonly error?: number;
}

const inHeader =
  (name: string): Part['request'] =>
  (value) => ({ headers: { [name]: value } });

const PARTS: Readonly<Record<string, Part>> = {
  'the target': {
    request: (target) => ({ target }),
    stored: [
      '/plants',
      '/plants?',
      '/plants?id=8&name=/elsewhere#b',
      'http://localhost/plants',
      'HTTPS://user@[::1]:80/plants?a=b',
    ],
    refused: [
      '/',
      '/plants/',
      '//plants',
      '/plants#a',
      '/Plants',
      '/plantsx',
      '/%70lants',
      '/a/../plants',
      '/a?x=http://localhost/plants',
      'http://localhost//plants',
      'http://localhost?/plants',
      '*',
    ],
    status: 404,
  },
  // RFC 3986, section 3.2.2.
  Host: {
    request: inHeader('Host'),
    stored: ['', 'plants.example:8080', '[v1.fe80::a+b]:1', "a_b~c%C3%A5!$&'()*,;="],
    refused: Array.from(' /@?#\\"<>^`{|}\u00e9', (character) => `a${character}b`),
    status: 400,
  },
  'Content-Type': {
    request: inHeader('Content-Type'),
    stored: [
      'Application/JSON',
      'application/json ; charset="UTF-8"',
      'application/json;charset=utf8; odata=verbose; a="b;c"',
      'application/json; x-charset=latin1;',
      `application/json; a=${'b'.repeat(7_000)}`,
    ],
    refused: [
      '',
      'application/json5',
      'application/json, text/plain',
      'application/json charset=utf-8',
      'application/json; charset=utf-16',
      'application/json; charset=xutf-8',
      'application/json; charset=utf-8x',
      'application/json; charset=utf-8; charset=latin1',
    ],
    status: 400,
    error: 415,
  },
  'Content-Encoding': {
    request: inHeader('Content-Encoding'),
    stored: ['identity', 'Identity'],
    refused: ['', 'gzip', 'identity, gzip', 'identity, identity'],
    status: 400,
    error: 415,
  },
  'the method': {
    request: (method) => ({ method }),
    stored: ['POST'],
    refused: ['GET', 'OPTIONS', 'PUT', 'PATCH', 'DELETE', 'TRACE'],
    status: 405,
  },
};

t.test('a part of the head decides whether a plant is stored', async (t) => {
  const { port, log } = await serve(t);
  const client = await connect(t, port);
  for (const [about, { request, stored, refused, ...expected }] of Object.entries(PARTS)) {
    for (const value of refused) {
      client.send(message(request(value)));
      const headers = { connection: 'keep-alive' };
      isFailure(t, await client.answer(), { headers, ...expected }, `${about}: "${value}"`);
    }
    const before = log.size;
    for (const [n, value] of stored.entries()) {
      const body = `{"id":${before + n},"name":"fern"}`;
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
  const rows: readonly [error: number, version: string, headers: Message['headers'] & object][] = [
    [400, '1.1', { Host: undefined }],
    [400, '1.1', { Host: ['localhost', 'localhost'] }],
    [400, '1.1', { Host: undefined, host: 'localhost', HOST: 'other' }],
    [200, '1.1', { 'X-Name': 'Host' }],
    [200, '1.0', { Host: undefined }],
    [400, '1.0', { Host: ['localhost', 'other'] }],
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
    for (const coding of ['chunked', 'gzip, chunked']) {
      const headers = { ...CHUNKED, Connection: 'keep-alive', 'Transfer-Encoding': coding };
      const client = await connect(t, port);
      client.send(inVersion('1.0', { headers, body: '0\r\n\r\n' }));
      isFailure(t, await client.answer(), MALFORMED, coding);
      await client.closed;
    }
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
  const { port } = await serve(t);
  for (const [count, status] of [
    [MAX_HEADER_LINES, 200],
    [MAX_HEADER_LINES + 1, 431],
    [999, 431],
  ] as const)
    t.equal((await exchange(t, port, withLines(count))).status, status, `${count} lines`);
});
