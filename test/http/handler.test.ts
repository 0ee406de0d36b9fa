import { createServer } from 'node:http';

import t from 'tap';

import { createPlantHandler, PlantStoreError } from '../../dist/index.js';
import { chunk, exchange, FERN, isFailure, message, TOKEN, type Message } from '../client.js';
import { listen, serve } from '../service.js';
import { openLog, storeOf } from '../stores.js';

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
  const isPromise = { name: 'TypeError', message: /^store: .*; await a promise of a store$/ };
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
