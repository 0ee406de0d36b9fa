import { createServer } from 'node:http';

import t from 'tap';

import { Failure, failures } from '../../dist/http/failures.js';
import { createPlantHandler, PlantStoreError } from '../../dist/index.js';
import { PlantFault } from '../../dist/plant-json.js';
import { SETTINGS } from '../../dist/program/settings/table.js';
import {
  chunk,
  CHUNKED,
  connect,
  exchange,
  expectFailure,
  message,
  TOKEN,
  type Expected,
  type Message,
} from '../helpers/client.js';
import { codeSpans, rows } from '../helpers/documents.js';
import { exactly } from '../helpers/exactly.js';
import { inJson, IVY } from '../helpers/plants.js';
import { listen, serve } from '../helpers/service.js';
import { openNewLog, storeOf } from '../helpers/stores.js';
import { expectDecisions } from './support.js';

/** A word that clients and the store send, and that no answer may repeat. */
const MARKER = 'marker';

const FAULT = new Error(MARKER);

/** The errors with which the store fails, by the id of the plant. */
const ERRORS: ReadonlyMap<bigint, Error> = new Map([
  [1n, new PlantStoreError('conflict', MARKER)],
  [IVY.id, FAULT],
]);

const BEARER = 'Bearer realm="plant-store"';
const UNKNOWN_CODING = { ...CHUNKED, 'Transfer-Encoding': 'gzip, chunked' };

/** A failure for each check of a request, in the order of the checks. */
const FAILURES: readonly (readonly [condition: string, fault: Message, expected: Expected])[] = [
  ['a malformed Host', { headers: { Host: `/${MARKER}` } }, { status: 400 }],
  [
    'no bearer token',
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
    'another media type',
    { headers: { 'Content-Type': `text/${MARKER}` } },
    { status: 400, error: 415 },
  ],
  ['a content coding', { headers: { 'Content-Encoding': MARKER } }, { status: 400, error: 415 }],
  [
    'a transfer coding other than chunked',
    { headers: UNKNOWN_CODING, body: chunk('') },
    { status: 501, headers: { connection: 'close' } },
  ],
  ['a length beyond the limit', { body: MARKER.padEnd(101) }, { status: 400, error: 413 }],
  ['a body that is not JSON', { body: MARKER }, { status: 400 }],
  [
    'JSON that is not a plant',
    { body: `{"id":"${MARKER}","tag":["${MARKER}"],"${MARKER}":1}` },
    { status: 400, error: 422 },
  ],
  ['a conflict', { body: `{"id":1,"name":"${MARKER}"}` }, { status: 400, error: 409 }],
  ['a fault of the store', { body: inJson(IVY) }, { status: 500 }],
  ['a store that cannot write', {}, { status: 503, headers: { 'retry-after': '1' } }],
];

/**
 * The parts of a request with all of these faults. If several faults have a body, the first one is
 * sent.
 */
const withAll = (faults: readonly Message[]): Message =>
  faults.reduceRight<Message>(
    (all, fault) => ({ ...all, ...fault, headers: { ...all.headers, ...fault.headers } }),
    {},
  );

for (const [n, [condition, fault, expected]] of FAILURES.entries())
  t.test(`${condition} is answered ${expected.status}, whatever later checks find`, async (t) => {
    const store = storeOf(({ id }) =>
      Promise.reject(ERRORS.get(id) ?? new PlantStoreError('unavailable', MARKER)),
    );
    const { port, handler, reported } = await serve(t, { store, maxBodyBytes: 100 });
    const client = await connect(t, port);
    const headers = { Cookie: MARKER, [`X-${MARKER}`]: MARKER };
    client.send(message(withAll([fault, { target: `/plants?${MARKER}`, headers }])));
    const answer = await client.answer();
    const connection = { connection: 'keep-alive', ...expected.headers };
    expectFailure(t, answer, { ...expected, headers: connection }, condition);
    t.notMatch(
      answer.text.toLowerCase(),
      MARKER,
      'repeats nothing that the client or the store sent',
    );
    t.notMatch(answer.text, TOKEN, 'contains no token');
    t.strictSame(reported, expected.status === 500 ? [FAULT] : [], 'only a 500 is reported');
    if (answer.headers.connection !== 'close') {
      client.send(message({ target: '/elsewhere' }));
      t.equal((await client.answer()).status, 404, 'the connection can be used again');
    }
    t.equal(handler.bufferedBytes(), 0, 'the memory of the request is released');

    const faults = FAILURES.slice(n).map(([, each]) => each);
    const { error = expected.status } = expected;
    const { body } = await exchange(t, port, message(withAll(faults)));
    t.match(JSON.parse(body), { error }, 'it is checked before the later ones');
    const stranger = message(withAll([{ headers: { Authorization: '' } }, ...faults]));
    const { status } = await exchange(t, port, stranger);
    t.equal(status, n === 0 ? 400 : 401, 'only HTTP is checked before the token');
  });

t.test('invalid options make createPlantHandler throw', async (t) => {
  const store = await openNewLog(t);
  const make = (options: object) => () =>
    createPlantHandler({ store, tokens: [TOKEN], ...options });
  t.throws(make({ maxBodyBytes: 0 }), RangeError, 'a limit that is out of its range');
  for (const report of [null, 42, 'console', {}])
    t.throws(make({ report }), { name: 'TypeError', message: /^report: / });
  for (const store of [undefined, null, {}, { add: () => undefined }, { close: () => undefined }])
    t.throws(make({ store }), { name: 'TypeError', message: /^store: must have/ });
  const isPromise = { name: 'TypeError', message: /^store: .*; await a promise of a store$/ };
  t.throws(make({ store: Promise.resolve(store) }), isPromise);
});

t.test('a plant is acknowledged only if the store says that it is stored', async (t) => {
  // A wrapper in JavaScript resolves to `undefined` if it only logs an error, or lacks a `return`.
  const store = storeOf(() => Promise.resolve() as never);
  const { port, reported } = await serve(t, { store });
  expectFailure(t, await exchange(t, port, message()), { status: 500 }, 'it is a fault');
  t.match(reported, exactly({ name: 'TypeError', message: /^store: add must resolve to / }));
});

t.test('modifying the options object later has no effect', async (t) => {
  const tokens = [TOKEN];
  const options = { store: await openNewLog(t), tokens, maxBodyBytes: 100 };
  const handler = createPlantHandler(options);
  tokens[0] = 'other';
  options.maxBodyBytes = 1;
  const port = await listen(t, createServer(handler));
  t.equal((await exchange(t, port, message())).status, 200);
});

/** Samples of the failures that depend on the request. */
const SAMPLES: Readonly<Record<string, readonly Failure[]>> = {
  notPlant: (['json', 'plant'] as const).map((kind) =>
    failures.notPlant(new PlantFault(kind, 'body: must be a plant')),
  ),
  tooLarge: [failures.tooLarge(1)],
};

const all = Object.entries(failures).flatMap(([name, failure]) => {
  const samples = failure instanceof Failure ? [failure] : SAMPLES[name];
  if (!samples) throw new Error(`there is no sample of ${name}`);
  return samples;
});

t.test('the table of answers lists the numbers and the headers of every failure', async (t) => {
  const shown = rows('Answers').map(([, status = '', error = '']) => {
    const [code = ''] = status.split(',');
    return [code, error, ...codeSpans(status).map((header) => header.split(':')[0])].join(' ');
  });
  const given = all.map(({ status, error, headers }) => {
    return [status, error, ...Object.keys(headers)].join(' ');
  });
  t.strictSame([...new Set(shown)].toSorted(), [...new Set(given)].toSorted());
});

/** What the table of answers says about each failure. */
const CONDITIONS: Readonly<Record<keyof typeof failures, string>> = {
  notPlant: 'the body is JSON, but not a plant',
  inexact: 'U+FFFD in decoded text',
  conflict: 'the id belongs to a _different_ plant',
  tooLarge: 'the body is larger than the limit',
  mediaType: 'not `application/json`',
  contentCoding: 'a `Content-Encoding` other than `identity`',
  malformed: 'malformed HTTP',
  host: 'a malformed `Host`',
  http10TransferCoding: 'HTTP/1.0 with a transfer coding',
  manyAuthorizations: 'more than one `Host` or `Authorization`',
  noToken: 'token missing',
  wrongToken: 'or wrong',
  notFound: 'unknown path',
  method: '`/plants` with another method',
  timeout: 'the request did not arrive in time',
  chunkExtensions: 'chunk extensions too large',
  expectation: 'an expectation other than `100-continue`',
  headersTooLarge: 'header section too large, or more than 100 header lines',
  internal: 'internal error',
  consumed: 'a body that a parser has consumed',
  transferCoding: 'a transfer coding other than `chunked`',
  overloaded: 'overloaded',
  unavailable: 'the store cannot write',
};

t.test('the table of answers says when each failure is sent', async (t) => {
  for (const [name, condition] of Object.entries(CONDITIONS)) {
    const failure = failures[name as keyof typeof failures];
    const { status, error } = failure instanceof Failure ? failure : (SAMPLES[name]?.at(-1) ?? {});
    const row = rows('Answers').find(([text]) => text?.includes(condition)) ?? [];
    t.match(row[1], new RegExp(`^${status}\\b`), name);
    t.equal(row[2], String(error), name);
  }
});

t.test('a message names only settings that exist', async (t) => {
  const names = all.flatMap(({ message }) => message.match(/PLANT_STORE_\w+/g) ?? []);
  t.ok(names.length > 0);
  for (const name of names) t.ok(name in SETTINGS, name);
});

t.test('only POST /plants stores a plant', async (t) => {
  await expectDecisions(t, {
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
        '/plants/',
        '//plants',
        '/plants#a',
        '/Plants',
        '/plantsx',
        '/%70lants',
        '/a?x=http://localhost/plants',
        'http://localhost//plants',
        'http://localhost?/plants',
      ],
      status: 404,
    },
    'the method': {
      request: (method) => ({ method }),
      stored: ['POST'],
      refused: ['GET', 'OPTIONS', 'PUT', 'PATCH', 'DELETE', 'TRACE'],
      status: 405,
    },
  });
});
