import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Server } from 'node:http';
import { text } from 'node:stream/consumers';

import t, { type Test } from 'tap';

import type { NewPlant } from '../../dist/index.js';
import { createPlantHandler, type PlantHandler } from '../../dist/index.js';
import { chunk, CHUNKED, message, TOKEN } from '../client.js';
import { gatedStore, storeOf } from '../stores.js';
import { connectWithRecords } from '../tls-records.js';
import { startServer, tlsMaterial } from './support.js';

/*
 * Once the responses that wait on a connection exceed a high-water mark, node:http pauses its parser. TLS records
 * that are decrypted by then reach it all the same, and are lost (Node 20 to 26).
 */

const REQUESTS = 140;
/** The responses to these exceed the high-water mark. */
const BEFORE_PAUSE = 100;

const nameOf = (id: number): string => `${id} ${'x'.repeat(1_000)}`;

/** A request in parts: its head, and each chunk of its body. */
function partsOf(id: number): Buffer[] {
  const body = JSON.stringify({ id, name: nameOf(id) });
  const half = body.length / 2;
  const chunks = [body.slice(0, half), body.slice(half), ''].map(chunk);
  return [message({ headers: CHUNKED, body: '' }), ...chunks];
}

/** Calls back once the parser of a server fails, or all requests have arrived. */
function onParseError(t: Test, callback: () => void): void {
  let requests = 0;
  const onRequest = (message: unknown): void => {
    const { server } = message as { readonly server: Server };
    if (++requests === 1) server.once('clientError', callback);
    if (requests === REQUESTS) callback();
  };
  subscribe('http.server.request.start', onRequest);
  t.teardown(() => unsubscribe('http.server.request.start', onRequest));
}

t.test('over TLS, nothing is processed behind bytes that node:http loses', async (t) => {
  const [first, others] = [gatedStore(), gatedStore()];
  const plants: NewPlant[] = [];
  const store = storeOf((plant) => {
    plants.push(plant);
    // The responses to the others wait for that to the first one.
    return plants.length === 1 ? first.add(plant) : others.add(plant);
  });
  const inner = createPlantHandler({ store, tokens: [TOKEN] });
  const handled: Promise<void>[] = [];
  const observed = (...args: Parameters<PlantHandler>): Promise<void> => {
    const handling = inner(...args);
    handled.push(handling);
    return handling;
  };
  const handler = Object.assign(observed, inner);
  const port = await startServer(t, handler, { tls: tlsMaterial() });
  onParseError(t, () => setImmediate(() => first.letGo()));
  const ids = Array.from({ length: REQUESTS }, (_, id) => id);
  const client = await connectWithRecords(port);
  await client.send(ids.slice(0, BEFORE_PAUSE).flatMap(partsOf));
  await others.arrived(BEFORE_PAUSE - 1);
  others.letGo();
  // Otherwise the parser would be paused between two packets, or not at all.
  await Promise.all(handled.slice(1));
  // The first of these records pauses the parser, and is decrypted together with the others.
  await client.send(ids.slice(BEFORE_PAUSE).flatMap(partsOf));
  const received = await text(client.socket);
  t.strictSame(
    plants.map(({ id, name }) => [Number(id), name]),
    ids.slice(0, BEFORE_PAUSE).map((id) => [id, nameOf(id)]),
  );
  t.equal(received, '', 'the connection is closed at once');
});
