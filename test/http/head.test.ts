import { createServer } from 'node:http';
import { createServer as createHttp2Server } from 'node:http2';

import t from 'tap';

import { MAX_CONTENT_TYPE, MAX_HEADER_LINES } from '../../dist/http/limits.js';
import {
  anyAnswer,
  CHUNKED,
  connect,
  exchange,
  FERN,
  isFailure,
  message,
  type Message,
} from '../client.js';
import { http2Answer, http2Post, http2Session } from '../http2.js';
import { listen, serve } from '../service.js';

/** RFC 3986, sections 3.2.2 and 3.2.3. */
const HOSTS = [
  'plants.example',
  'plants.example.',
  'plants.example:8080',
  'plants.example:',
  '127.0.0.1',
  '127.0.0.1:80',
  '[::1]',
  '[::1]:80',
  '[::1]:',
  '[2001:db8::7]',
  '[::ffff:192.0.2.1]:65535',
  '[v1.fe80:a+b]',
  'a_b~c%20',
  'f%C3%A5rn:8080',
  "!$&'()*+,;=",
  '',
];

const NOT_HOSTS = [
  '[::1',
  '::1]',
  '[]',
  '[]:80',
  '[::1]80',
  '[::1]x:80',
  '[:::1]',
  '[1.2.3.4]',
  '[fe80::1%eth0]',
  '[v.a]',
  '[v1.]',
  'h:1:2',
  '::::',
  '::1',
  'h%zz',
  'h%2',
  '%',
  'h:-1',
  'h:+1',
  'h:99999x',
  'h: 1',
  'a b',
  'a/b',
  'a@b',
  'a?b',
  'a#b',
  'a\\b',
  'a"b',
  'a<b',
  '\u00e9',
];

t.test('a Host is a name or an address, with or without a port', async (t) => {
  const { port } = await serve(t);
  for (const Host of HOSTS)
    t.equal((await exchange(t, port, message({ headers: { Host } }))).status, 200, `"${Host}"`);
});

t.test('any other Host is refused, and the connection can be used again', async (t) => {
  const { port, log } = await serve(t);
  const client = await connect(t, port);
  for (const Host of NOT_HOSTS) {
    client.send(message({ headers: { Host } }));
    const answer = await client.answer();
    isFailure(t, answer, { status: 400, headers: { connection: 'keep-alive' } }, `"${Host}"`);
  }
  t.equal(log.size, 0);
});

t.test('a request must have one Host header, which only HTTP/1.0 may omit', async (t) => {
  const { handler } = await serve(t);
  const port = await listen(t, createServer({ requireHostHeader: false }, handler));
  const status = async (headers: Message['headers'], version = '1.1'): Promise<number> => {
    const request = message({ ...(headers && { headers }) }).toString();
    const old = Buffer.from(request.replace('HTTP/1.1', `HTTP/${version}`));
    return (await exchange(t, port, old)).status;
  };
  t.equal(await status({ Host: undefined }), 400);
  t.equal(await status({ Host: ['localhost', 'localhost'] }), 400);
  t.equal(await status({ Host: undefined, host: 'localhost', HOST: 'other' }), 400);
  t.equal(await status({ 'X-Name': 'Host' }), 200, 'a value is not a name');
  t.equal(await status({ Host: undefined }, '1.0'), 200);
  t.equal(await status({ Host: ['localhost', 'other'] }, '1.0'), 400);
});

t.test('the host of an absolute-form target must be a valid and non-empty one', async (t) => {
  const { port, log } = await serve(t);
  for (const target of [
    'http:///plants',
    'HTTPS:///plants',
    'http://:80/plants',
    'http://user@/plants',
    'http://user@:80/plants',
    'http://',
    'http://?/plants',
    'http://[::1/plants',
    'http://h:1:2/plants',
    'http://h%zz/plants',
  ])
    isFailure(t, await exchange(t, port, message({ target })), { status: 400 }, target);
  t.equal(log.size, 0);
});

t.test(
  'a version that HTTP/1 does not have is refused, and the body is not waited for',
  async (t) => {
    const { port, log } = await serve(t);
    for (const version of ['0.9', '2.0']) {
      const request = message({ headers: CHUNKED, body: '1000\r\nx' }).toString();
      const bytes = Buffer.from(request.replace('HTTP/1.1', `HTTP/${version}`));
      const answer = await exchange(t, port, bytes);
      isFailure(t, answer, { status: 400, headers: { connection: 'close' } }, version);
    }
    t.equal(log.size, 0);
  },
);

t.test('a transfer coding in HTTP/1.0 is refused', async (t) => {
  const { port, log } = await serve(t);
  for (const Connection of ['keep-alive', 'close', undefined])
    for (const coding of ['chunked', 'gzip, chunked', 'identity, chunked']) {
      const headers = { Connection, 'Content-Length': undefined, 'Transfer-Encoding': coding };
      const request = message({ headers, body: '0\r\n\r\n' }).toString();
      const client = await connect(t, port);
      client.send(request.replace('HTTP/1.1', 'HTTP/1.0'));
      const expected = { status: 400, headers: { connection: 'close' } };
      isFailure(t, await client.answer(), expected, `${coding}, ${Connection ?? 'no Connection'}`);
      await client.closed;
    }
  t.equal(log.size, 0);
});

t.test(
  'an HTTP/1.0 request with a transfer coding is refused after a body parser, too',
  async (t) => {
    const { handler } = await serve(t);
    const server = createServer((req, res) => {
      req.resume().on('end', () => handler(Object.assign(req, { body: {} }), res));
    });
    const client = await connect(t, await listen(t, server));
    const headers = { Connection: 'keep-alive', ...CHUNKED };
    client.send(message({ headers, body: '0\r\n\r\n' }).toString().replace('/1.1', '/1.0'));
    const expected = { status: 400, headers: { connection: 'close' } };
    isFailure(t, await client.answer(), expected, 'even if its body has been read');
    await client.closed;
  },
);

t.test(`a Content-Type has at most ${MAX_CONTENT_TYPE} characters`, async (t) => {
  const { port, log } = await serve(t);
  const type = (length: number): string => `${'application/json; a='.padEnd(length - 1)}b`;
  for (const length of [MAX_CONTENT_TYPE + 1, 8_000, 15_500]) {
    const headers = { 'Content-Type': type(length) };
    const answer = await exchange(t, port, message({ headers }));
    isFailure(t, answer, { status: 400, error: 415 }, `${length} characters`);
  }
  t.equal(log.size, 0);
  const longest = message({ headers: { 'Content-Type': type(MAX_CONTENT_TYPE) } });
  t.equal((await exchange(t, port, longest)).status, 200);
});

t.test('more than one Content-Type or Content-Encoding is refused', async (t) => {
  const { port, log } = await serve(t);
  const type = 'application/json';
  const rows: readonly Message['headers'][] = [
    { 'Content-Type': [type, 'text/plain'] },
    { 'Content-Type': ['text/plain', type] },
    { 'Content-Type': [type, type] },
    { 'Content-Type': [type, ''] },
    { 'Content-Type': type, 'content-type': type },
    { 'Content-Encoding': ['identity', 'gzip'] },
    { 'Content-Encoding': ['gzip', 'identity'] },
    { 'Content-Encoding': ['identity', 'identity'] },
    { 'Content-Encoding': ['identity', ''] },
    { 'Content-Encoding': 'identity', 'CONTENT-ENCODING': 'identity' },
  ];
  for (const headers of rows) {
    const answer = await exchange(t, port, message({ ...(headers && { headers }) }));
    isFailure(t, answer, { status: 400, error: 415 }, JSON.stringify(headers));
  }
  t.equal(log.size, 0);
});

/** A request for a plant with this number of header lines, of which the last one is given. */
function withLines(count: number, last = 'X: x'): Buffer {
  const fillers = Array<string>(count - 5).fill('X: x');
  const [requestLine = '', ...rest] = message().toString().split('\r\n');
  const head = rest.slice(0, 4);
  return Buffer.from([requestLine, ...head, ...fillers, last, '', FERN].join('\r\n'));
}

t.test(`a request with more than ${MAX_HEADER_LINES} header lines is refused`, async (t) => {
  const { port, log } = await serve(t);
  for (const count of [MAX_HEADER_LINES + 1, 500, 999])
    isFailure(t, await exchange(t, port, withLines(count)), { status: 431 }, `${count} lines`);
  t.equal(log.size, 0);
  t.equal((await exchange(t, port, withLines(MAX_HEADER_LINES))).status, 200);
});

t.test('a request is refused if the server may have dropped header lines of it', async (t) => {
  const { handler, log } = await serve(t);
  // The list of node:http grows by 32 lines at a time, or by 31.
  for (const maxHeadersCount of [10, 31, 32, 50.5, 62, 63, 93, 100]) {
    const server = Object.assign(createServer(handler), { maxHeadersCount });
    const port = await listen(t, server);
    const most = Math.floor(maxHeadersCount);
    const stored = log.size;
    for (const count of [most, most + 1, most + 31, most + 32, 300]) {
      // Later releases than Node 20 refuse it themselves, without a body.
      const hidden = withLines(count, 'Authorization: Bearer other');
      const { status } = await exchange(t, port, hidden, anyAnswer);
      t.equal(status, 431, `${count} lines for a server that keeps ${maxHeadersCount}`);
    }
    t.equal(log.size, stored);
    const { status } = await exchange(t, port, withLines(most - 1, 'Host: other'));
    t.equal(status, 400, 'with fewer lines, all are checked');
    const expected = { status: 200, body: '{"name":"Boston fern","tag":"indoor"}' };
    t.match(await exchange(t, port, withLines(most - 1)), expected, `${most - 1} lines`);
  }
});

t.test('a server that keeps all header lines needs no limit of its own', async (t) => {
  const { handler } = await serve(t);
  for (const maxHeadersCount of [0, -1, null, undefined, MAX_HEADER_LINES + 1]) {
    const port = await listen(t, Object.assign(createServer(handler), { maxHeadersCount }));
    t.equal((await exchange(t, port, withLines(MAX_HEADER_LINES))).status, 200);
    const refused = await exchange(t, port, withLines(MAX_HEADER_LINES + 1));
    isFailure(t, refused, { status: 431 }, String(maxHeadersCount));
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

t.test('an absolute-form target without a host is passed on, or refused', async (t) => {
  const { handler, log } = await serve(t);
  const paths: (string | undefined)[] = [];
  const server = createServer((req, res) =>
    handler(req, res, () => {
      paths.push(req.url);
      res.end('of the application');
    }),
  );
  const port = await listen(t, server);
  for (const target of ['http:///plants', 'HTTPS://:80/plants?a', 'http://user@/plants']) {
    const answer = await exchange(t, port, message({ target }));
    isFailure(t, answer, { status: 400 }, `${target} is for the plants`);
  }
  for (const target of ['http:///', 'http:///plant', 'http://'])
    t.equal((await exchange(t, port, message({ target }), anyAnswer)).body, 'of the application');
  t.strictSame(paths, ['http:///', 'http:///plant', 'http://']);
  t.equal(log.size, 0);
});
