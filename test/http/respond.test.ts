import { createServer } from 'node:http';
import type { Socket } from 'node:net';

import t from 'tap';

import { PlantStoreError, type PlantHandlerOptions } from '../../dist/index.js';
import {
  chunk,
  CHUNKED,
  connect,
  exchange,
  isFailure,
  message,
  TOKEN,
  type Expected,
  type Message,
} from '../client.js';
import { inJson, PLANTS_OF_EACH_SHAPE } from '../plants.js';
import { listen, serve } from '../service.js';
import { storeOf } from '../stores.js';

const MARKER = 'marker';

const rejecting = (error: Error) => ({ store: storeOf(() => Promise.reject(error)) });

const BEARER = 'Bearer realm="plant-store"';
const CLOSES = { connection: 'close' };

type Row = readonly [
  condition: string,
  request: Message,
  expected: Expected,
  options?: Partial<PlantHandlerOptions>,
];

/** A failure for each kind of answer, with the marker wherever a client may put it. */
const ROWS: readonly Row[] = [
  ['a body that is not JSON', { body: MARKER }, { status: 400 }],
  [
    'JSON that is not a NewPlant',
    { body: `{"id":"${MARKER}","tag":["${MARKER}"],"${MARKER}":1}` },
    { status: 400, error: 422 },
  ],
  [
    'an id that belongs to a different plant',
    { body: `{"id":1,"name":"${MARKER}"}` },
    { status: 400, error: 409 },
  ],
  [
    'a body that is content-encoded',
    { headers: { 'Content-Encoding': MARKER } },
    { status: 400, error: 415, headers: { 'accept-encoding': 'identity' } },
  ],
  [
    'no token',
    { headers: { Authorization: `Basic ${MARKER}` } },
    { status: 401, headers: { 'www-authenticate': BEARER } },
  ],
  [
    'a wrong token',
    { headers: { Authorization: `Bearer ${MARKER}` } },
    { status: 401, headers: { 'www-authenticate': `${BEARER}, error="invalid_token"` } },
  ],
  ['an unknown path', { target: `/${MARKER}` }, { status: 404 }],
  ['another method', { method: 'PUT' }, { status: 405, headers: { allow: 'POST' } }],
  [
    'a body that does not arrive in time',
    { headers: { 'Content-Length': '100' }, body: `{"name":"${MARKER}"` },
    { status: 408, headers: CLOSES },
    { bodyTimeoutMs: 50 },
  ],
  [
    'a transfer coding other than chunked',
    { headers: { ...CHUNKED, 'Transfer-Encoding': 'gzip, chunked' }, body: chunk('') },
    { status: 501, headers: CLOSES },
  ],
  ['a fault in the program', {}, { status: 500 }, rejecting(new Error(MARKER))],
  [
    'a store that cannot write',
    {},
    { status: 503, headers: { 'retry-after': '1' } },
    rejecting(new PlantStoreError('unavailable', MARKER)),
  ],
];

for (const [condition, request, expected, options] of ROWS)
  t.test(condition, async (t) => {
    const service = await serve(t, options);
    await service.log.add({ id: 1n, name: 'somebody else' });
    const headers = { ...request.headers, [`X-${MARKER}`]: MARKER, Cookie: MARKER };
    const client = await connect(t, service.port);
    client.send(message({ target: `/plants?${MARKER}`, ...request, headers }));
    const answer = await client.answer();
    const connection = { connection: 'keep-alive', ...expected.headers };
    isFailure(t, answer, { ...expected, headers: connection }, condition);
    t.notMatch(answer.text.toLowerCase(), MARKER, "tells nothing of the client's or the store's");
    t.notMatch(answer.text, TOKEN, 'contains no token');
    t.equal(service.log.size, 1, 'nothing is stored');
    t.equal(service.reported.length, expected.status === 500 ? 1 : 0, 'only a 500 is reported');
    if (answer.headers.connection === 'close') return;
    client.send(message({ target: '/elsewhere' }));
    t.equal((await client.answer()).status, 404, 'the connection can be used again');
    t.equal(service.handler.bufferedBytes(), 0, 'the memory of the request is released');
  });

t.test('a plant is answered with its members, unchanged, and no id', async (t) => {
  const { port, log } = await serve(t);
  const odd = JSON.stringify('"\0\u001f\\ \ud83c \udf3f f\u00e4rn \u{1f33f}');
  const rows: readonly [sent: string, answered: string][] = [
    ['{"id":1,"name":"fern"}', '{"name":"fern"}'],
    ['{"id":2,"name":"fern","tag":"indoor"}', '{"name":"fern","tag":"indoor"}'],
    ['{"tag":"","more":[1],"name":"","id":3}', '{"name":"","tag":""}'],
    ['{"id":4,"name":"__proto__","__proto__":{"tag":"x"}}', '{"name":"__proto__"}'],
    [`{"id":5,"name":${odd},"tag":${odd}}`, `{"name":${odd},"tag":${odd}}`],
    ...PLANTS_OF_EACH_SHAPE.map(
      (plant) => [inJson(plant), inJson(plant).replace(/"id":\d+,/, '')] as [string, string],
    ),
  ];
  for (const [sent, answered] of [...rows, ...rows]) {
    const answer = await exchange(t, port, message({ body: sent }));
    t.match(answer, { status: 200, body: answered }, sent);
    t.equal(answer.headers['content-type'], 'application/json', sent);
    t.equal(answer.headers['content-length'], String(Buffer.byteLength(answered)), sent);
  }
  t.equal(log.size, rows.length, 'each is stored once');
});

t.test('the head and the body of an answer leave in one piece', async (t) => {
  const { port, server } = await serve(t);
  const writes: string[] = [];
  server.on('connection', (socket: Socket) => {
    for (const method of ['_write', '_writev'] as const) {
      const write = (socket[method] as (...args: unknown[]) => void).bind(socket);
      socket[method] = (...args: unknown[]) => {
        writes.push(method);
        write(...args);
      };
    }
  });
  const requests = [message(), message({ body: '' }), message({ target: '/elsewhere' })];
  for (const request of requests) await exchange(t, port, request);
  // Several pieces would need `_writev`.
  t.strictSame(writes, Array(requests.length).fill('_write'));
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
