import { createServer } from 'node:http';

import t from 'tap';
import { Compile } from 'typebox/schema';

import {
  ErrorSchema,
  PlantSchema,
  PlantStoreError,
  type PlantHandlerOptions,
} from '../../dist/index.js';
import {
  chunk,
  CHUNKED,
  connect,
  exchange,
  FERN,
  isFailure,
  message,
  TOKEN,
  type Expected,
  type Message,
} from '../client.js';
import { listen, serve } from '../service.js';
import { storeOf } from '../stores.js';

const MARKER = 'marker';

interface Row extends Expected {
  readonly request: Message;
  readonly options?: Partial<PlantHandlerOptions>;
}

const rejecting = (error: Error) => ({ store: storeOf(() => Promise.reject(error)) });

const BEARER = 'Bearer realm="plant-store"';

/** The conditions of the design's tables, each with the marker wherever a client may put it. */
const ROWS: Readonly<Record<string, Row>> = {
  'a body that is not JSON': { request: { body: MARKER }, status: 400 },
  'a body that is not UTF-8': {
    request: { body: Buffer.from(`{"id":7,"name":"${MARKER}\xff"}`, 'latin1') },
    status: 400,
  },
  'an empty body': { request: { body: '' }, status: 400 },
  'no body': { request: { headers: { 'Content-Length': undefined }, body: '' }, status: 400 },
  'a member that comes twice': {
    request: { body: `{"id":7,"name":"${MARKER}","name":"${MARKER}"}` },
    status: 400,
  },
  'JSON that is not a NewPlant': {
    request: { body: `{"id":"${MARKER}","tag":["${MARKER}"],"${MARKER}":1}` },
    status: 400,
    error: 422,
  },
  'JSON that is not an object': { request: { body: `"${MARKER}"` }, status: 400, error: 422 },
  'an id that belongs to a different plant': {
    request: { body: `{"id":1,"name":"${MARKER}"}` },
    status: 400,
    error: 409,
  },
  'a body larger than the limit': {
    request: { headers: CHUNKED, body: Buffer.concat([FERN, ''].map(chunk)) },
    options: { maxBodyBytes: FERN.length - 1 },
    status: 400,
    error: 413,
  },
  'a body that is not application/json': {
    request: { headers: { 'Content-Type': `text/${MARKER}` } },
    status: 400,
    error: 415,
  },
  'a body that is content-encoded': {
    request: { headers: { 'Content-Encoding': MARKER } },
    status: 400,
    error: 415,
    headers: { 'accept-encoding': 'identity' },
  },
  'two Authorization headers': {
    request: { headers: { Authorization: [`Bearer ${TOKEN}`, `Bearer ${MARKER}`] } },
    status: 400,
  },
  'no token': {
    request: { headers: { Authorization: `Basic ${MARKER}` } },
    status: 401,
    headers: { 'www-authenticate': BEARER },
  },
  'a wrong token': {
    request: { headers: { Authorization: `Bearer ${MARKER}` } },
    status: 401,
    headers: { 'www-authenticate': `${BEARER}, error="invalid_token"` },
  },
  'an unknown path': { request: { target: `/${MARKER}` }, status: 404 },
  'another method': { request: { method: 'PUT' }, status: 405, headers: { allow: 'POST' } },
  'a body that does not arrive in time': {
    request: { headers: { 'Content-Length': '100' }, body: `{"name":"${MARKER}"` },
    options: { bodyTimeoutMs: 50 },
    status: 408,
    headers: { connection: 'close' },
  },
  'a transfer coding other than chunked': {
    request: { headers: { ...CHUNKED, 'Transfer-Encoding': 'gzip, chunked' }, body: chunk('') },
    status: 501,
    headers: { connection: 'close' },
  },
  'a fault in the program': {
    request: { body: `{"id":1,"name":"${MARKER}"}` },
    options: rejecting(new Error(MARKER)),
    status: 500,
  },
  'a store that cannot write': {
    request: { body: `{"id":1,"name":"${MARKER}"}` },
    options: rejecting(new PlantStoreError('unavailable', MARKER)),
    status: 503,
    headers: { 'retry-after': '1' },
  },
};

const isError = Compile(ErrorSchema);
const isPlant = Compile(PlantSchema);

for (const [condition, row] of Object.entries(ROWS))
  t.test(`${condition}: ${row.status}, error ${row.error ?? row.status}`, async (t) => {
    const service = await serve(t, row.options);
    await service.log.add({ id: 1n, name: 'somebody else' });
    const { target = `/plants?${MARKER}`, headers, ...rest } = row.request;
    const marked = { ...headers, [`X-${MARKER}`]: MARKER, Cookie: MARKER };
    const client = await connect(t, service.port);
    client.send(message({ ...rest, target, headers: marked }));
    const answer = await client.answer();
    isFailure(
      t,
      answer,
      { ...row, headers: { connection: 'keep-alive', ...row.headers } },
      condition,
    );
    t.ok(isError.Check(JSON.parse(answer.body)), 'conforms to the Error schema');
    t.notMatch(answer.text.toLowerCase(), MARKER, "tells nothing of the client's or the store's");
    t.notMatch(answer.text, TOKEN, 'contains no token');
    t.notMatch(answer.text, /\bat \w+.*:\d+/, 'contains no stack');
    t.equal(service.log.size, 1, 'nothing is stored');
    t.equal(service.reported.length, row.status === 500 ? 1 : 0, 'only a 500 is reported');
    if (answer.headers.connection === 'close') return;
    client.send(message({ target: '/elsewhere' }));
    t.equal((await client.answer()).status, 404, 'the connection can be used again');
    t.equal(service.handler.bufferedBytes(), 0, 'the memory of the request is released');
  });

t.test('a plant is answered with its name and tag, unchanged, and no id', async (t) => {
  const { port, log } = await serve(t);
  const odd = JSON.stringify('"\0\u001f\\ \ud83c \udf3f f\u00e4rn \u{1f33f}');
  const rows: readonly [sent: string, answered: string][] = [
    ['{"id":1,"name":"fern"}', '{"name":"fern"}'],
    ['{"id":2,"name":"fern","tag":"indoor"}', '{"name":"fern","tag":"indoor"}'],
    ['{"tag":"","more":[1],"name":"","id":3}', '{"name":"","tag":""}'],
    ['{"id":4,"name":"__proto__","__proto__":{"tag":"x"}}', '{"name":"__proto__"}'],
    [`{"id":5,"name":${odd},"tag":${odd}}`, `{"name":${odd},"tag":${odd}}`],
  ];
  for (const [sent, answered] of [...rows, ...rows]) {
    const answer = await exchange(t, port, message({ body: sent }));
    t.match(answer, { status: 200, body: answered }, sent);
    t.equal(answer.headers['content-type'], 'application/json', sent);
    t.equal(answer.headers['content-length'], String(Buffer.byteLength(answered)), sent);
    t.ok(isPlant.Check(JSON.parse(answer.body)), `${sent}: conforms to the Plant schema`);
  }
  t.equal(log.size, rows.length, 'each is stored once');
});

t.test('a method other than POST gets a 405 that names POST', async (t) => {
  const { port, log } = await serve(t);
  for (const method of ['GET', 'HEAD', 'OPTIONS', 'PUT', 'PATCH', 'DELETE', 'TRACE']) {
    const answer = await exchange(t, port, message({ method }));
    t.match(answer, { status: 405, headers: { allow: 'POST' } }, method);
  }
  t.equal(log.size, 0);
});

t.test('a HEAD gets the headers of the same GET, and no body', async (t) => {
  const { port } = await serve(t);
  for (const target of ['/plants', '/elsewhere']) {
    const client = await connect(t, port);
    const headers = { 'Content-Length': undefined, 'Content-Type': undefined };
    const get = message({ method: 'GET', target, headers, body: '' });
    const head = message({ method: 'HEAD', target, headers, body: '' });
    client.send(get, head, get);
    const first = await client.answer();
    const second = await client.answer('HEAD');
    const third = await client.answer();
    t.equal(second.status, first.status);
    t.strictSame({ ...second.headers, date: '' }, { ...first.headers, date: '' });
    t.equal(third.body, first.body, 'the next answer follows at once');
  }
});

t.test('a HEAD is answered before its body has arrived', async (t) => {
  const { handler } = await serve(t);
  for (const rejectNonStandardBodyWrites of [false, true]) {
    const port = await listen(t, createServer({ rejectNonStandardBodyWrites }, handler));
    const client = await connect(t, port);
    client.send(message({ method: 'HEAD' }).subarray(0, -1));
    t.equal((await client.answer('HEAD')).status, 405);
  }
});
