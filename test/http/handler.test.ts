import { createServer } from 'node:http';

import t from 'tap';

import { createPlantHandler, PlantStoreError } from '../../dist/index.js';
import { chunk, exchange, FERN, isFailure, message, TOKEN, type Message } from '../client.js';
import { listen, serve } from '../service.js';
import { openLog, storeOf } from '../stores.js';

t.test('plants are created at /plants, with any query', async (t) => {
  const { port } = await serve(t);
  const targets = [
    '/plants',
    '/plants?',
    '/plants?id=8&name=/elsewhere#b',
    'http://localhost/plants',
    'http://localhost:8080/plants?a=b',
    'HTTPS://plants.example/plants',
    'http://user@[::1]:80/plants',
  ];
  for (const target of targets)
    t.equal((await exchange(t, port, message({ target }))).status, 200, target);
});

t.test('any other path is answered with 404', async (t) => {
  const { port, log } = await serve(t);
  const targets = [
    '/',
    '/plants/',
    '//plants',
    '/plants;a=b',
    '/plants#a',
    '/Plants',
    '/plant',
    '/plantsx',
    '/%70lants',
    '/plants%3f',
    '/a/../plants',
    '/a?x=http://localhost/plants',
    'http://localhost',
    'http://localhost//plants',
    'http://localhost?/plants',
    'ftp://localhost/plants',
    '*',
  ];
  for (const target of targets)
    isFailure(t, await exchange(t, port, message({ target })), { status: 404 }, target);
  t.equal(log.size, 0);
});

t.test('the media type is application/json in UTF-8, in any spelling', async (t) => {
  const { port } = await serve(t);
  const types = [
    'application/json',
    'Application/JSON',
    'application/json;charset=utf-8',
    'application/json ; charset="UTF-8"',
    'application/json; charset=utf8',
    'application/json; odata=verbose; a="b;c"',
    'application/json; x-charset=latin1',
    `application/json; a=${'b'.repeat(7_000)}`,
    'application/json;',
  ];
  for (const type of types) {
    const answer = await exchange(t, port, message({ headers: { 'Content-Type': type } }));
    t.equal(answer.status, 200, type);
  }
});

t.test('any other media type is refused', async (t) => {
  const { port, log } = await serve(t);
  const types = [
    undefined,
    '',
    'text/json',
    'application/json5',
    'application/ld+json',
    'application/*',
    'application/json, text/plain',
    'application/json charset=utf-8',
    'application/json; charset=utf-16',
    'application/json; charset=xutf-8',
    'application/json; charset=utf-8x',
    'application/json; charset=utf-8; charset=latin1',
    'application/json; charset=utf-8x',
  ];
  for (const type of types) {
    const answer = await exchange(t, port, message({ headers: { 'Content-Type': type } }));
    isFailure(t, answer, { status: 400, error: 415 }, String(type));
  }
  t.equal(log.size, 0);
});

t.test('a body with a Content-Encoding is refused', async (t) => {
  const { port } = await serve(t);
  const rows = { identity: 200, Identity: 200, gzip: 400, 'identity, gzip': 400 };
  for (const [coding, status] of Object.entries(rows)) {
    const headers = { 'Content-Encoding': coding };
    t.equal((await exchange(t, port, message({ headers }))).status, status, coding);
  }
});

t.test('any transfer coding other than chunked is answered with 501', async (t) => {
  const { port } = await serve(t);
  const rows = {
    Chunked: 200,
    'gzip, chunked': 501,
    'chunked;a=b, chunked': 501,
    'identity, chunked': 501,
  };
  for (const [coding, status] of Object.entries(rows)) {
    const headers = { 'Content-Length': undefined, 'Transfer-Encoding': coding };
    const body = Buffer.concat([FERN, ''].map(chunk));
    t.equal((await exchange(t, port, message({ headers, body }))).status, status, coding);
  }
});

t.test('the first check that fails determines the answer', async (t) => {
  const unavailable = new PlantStoreError('unavailable', 'no more');
  const store = storeOf(() => Promise.reject(unavailable));
  const { port } = await serve(t, { store, maxBodyBytes: 100 });
  const unknownCoding = { 'Content-Length': undefined, 'Transfer-Encoding': 'gzip, chunked' };
  // Each fails one check more than the one below it.
  const rungs: readonly [error: number, about: string, fault: Message][] = [
    [404, 'the path', { target: '/elsewhere' }],
    [405, 'the method', { method: 'PUT' }],
    [415, 'the media type', { headers: { 'Content-Type': 'text/plain' } }],
    [415, 'the content coding', { headers: { 'Content-Encoding': 'gzip' } }],
    [501, 'the transfer coding', { headers: unknownCoding, body: chunk('') }],
    [413, 'the declared length', { headers: { 'Content-Length': '101' } }],
    [422, 'the plant', { body: '{"id":"7"}' }],
    [503, 'the store', {}],
  ];
  for (const [error, about] of rungs) {
    const faults = rungs.slice(rungs.findIndex(([, other]) => other === about));
    const request = faults.reduceRight<Message>(
      (all, [, , fault]) => ({ ...all, ...fault, headers: { ...all.headers, ...fault.headers } }),
      {},
    );
    const answer = await exchange(t, port, message(request));
    t.match(JSON.parse(answer.body), { error }, about);

    const Authorization = 'Bearer other';
    const stranger = { ...request, headers: { ...request.headers, Authorization } };
    const refused = await exchange(t, port, message(stranger));
    isFailure(t, refused, { status: 401 }, `${about}: the token is checked first`);
  }
});

t.test('invalid options make createPlantHandler throw', async (t) => {
  const store = await openLog(t);
  const make = (options: object) => () =>
    createPlantHandler({ store, tokens: [TOKEN], ...options });
  t.throws(make({ maxBodyBytes: 0 }), RangeError, 'a limit that is out of its range');
  for (const report of [null, 42, 'console', {}])
    t.throws(make({ report }), { name: 'TypeError', message: /^report: / });
  for (const store of [undefined, null, {}, { add: () => undefined }, { close: () => undefined }])
    t.throws(make({ store }), { name: 'TypeError', message: /^store: must have/ });
  const isPromise = { name: 'TypeError', message: 'store: is a promise; await it' };
  t.throws(make({ store: Promise.resolve(store) }), isPromise);
});

t.test('modifying the options object later has no effect', async (t) => {
  const tokens = [TOKEN];
  const options = { store: await openLog(t), tokens, maxBodyBytes: FERN.length };
  const handler = createPlantHandler(options);
  tokens[0] = 'other';
  options.maxBodyBytes = 1;
  const port = await listen(t, createServer(handler));
  t.equal((await exchange(t, port, message())).status, 200);
});
