import { AsyncLocalStorage } from 'node:async_hooks';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Server } from 'node:net';
import { text } from 'node:stream/consumers';

import t, { type Test } from 'tap';

import { createPlantHandler, type PlantHandler } from '../../dist/index.js';
import { REPORT_RATE } from '../../dist/report.js';
import { chunk, CHUNKED, connect, message, TOKEN } from '../client.js';
import { listen } from '../service.js';
import { storeOf } from '../stores.js';

/** The id of the request whose context is current; an application enters it before it calls the handler. */
const contexts = new AsyncLocalStorage<string>();

/** What ran for requests: the id of its plant, or a path, and the context in which it ran. */
type Seen = (readonly [what: string, expected: string | undefined, context: string | undefined])[];

/** A handler whose store and `report` note the contexts in which they are called. */
function observedHandler(seen: Seen): PlantHandler {
  const store = storeOf(async ({ id, tag }) => {
    seen.push(['store.add', tag, contexts.getStore()]);
    // Requests are interleaved: each continues when others have begun.
    await new Promise(setImmediate);
    if (id % 2n === 0n) throw new Error(tag);
    return 'created';
  });
  const report = (_: string, cause: unknown): void => {
    seen.push(['report', (cause as Error).message, contexts.getStore()]);
  };
  return createPlantHandler({ store, tokens: [TOKEN], report });
}

/** Enters the context that a request names. */
function enter(req: { headers: Readonly<Record<string, unknown>> }, next: () => void): void {
  contexts.run(String(req.headers['x-context']), next);
}

type MakeServer = (handler: PlantHandler, seen: Seen) => Server;

/** Calls the handler, with a `next` that notes the context. */
function handle(
  handler: PlantHandler,
  seen: Seen,
  req: IncomingMessage,
  res: ServerResponse,
): void {
  void handler(req, res, () => {
    seen.push(['next', req.url?.slice(1), contexts.getStore()]);
    res.end();
  });
}

const APPLICATIONS: Readonly<Record<string, MakeServer>> = {
  'node:http': (handler, seen) =>
    createServer((req, res) => enter(req, () => handle(handler, seen, req, res))),
  'node:http, after a body parser': (handler, seen) =>
    createServer((req, res) =>
      enter(req, () => {
        void text(req).then((body) => handle(handler, seen, Object.assign(req, { body }), res));
      }),
    ),
};

const PLANTS = 40;

/** Sends plants on several connections at once, some of their bodies in pieces. */
async function sendPlants(t: Test, port: number): Promise<void> {
  const clients = await Promise.all([1, 2, 3, 4].map(() => connect(t, port, () => undefined)));
  for (let id = 1; id <= PLANTS; id++) {
    const client = clients[id % clients.length];
    const headers = { 'X-Context': String(id) };
    const body = `{"id":${id},"name":"fern","tag":"${id}"}`;
    if (id % 3 === 0) client?.send(message({ headers, body }));
    else if (id % 3 === 1)
      client?.send(`GET /${id} HTTP/1.1\r\nHost: localhost\r\nX-Context: ${id}\r\n\r\n`);
    else {
      client?.send(message({ headers: { ...headers, ...CHUNKED }, body: chunk(body.slice(0, 9)) }));
      await new Promise(setImmediate);
      client?.send(chunk(body.slice(9)), chunk(''));
    }
  }
  for (let id = 1; id <= PLANTS; id++) await clients[id % clients.length]?.answer();
}

for (const [name, makeServer] of Object.entries(APPLICATIONS))
  t.test(`${name}: callbacks for a request run in its asynchronous context`, async (t) => {
    const seen: Seen = [];
    const port = await listen(t, makeServer(observedHandler(seen), seen));
    await sendPlants(t, port);
    for (const [what, expected, context] of seen)
      t.equal(context, expected, `${what} for request ${expected ?? ''}`);
    const count = (what: string): number => seen.filter(([each]) => each === what).length;
    t.equal(count('store.add'), 26, 'plants that came with their heads, and in pieces');
    t.equal(count('report'), REPORT_RATE.count, 'plants that the store failed to add');
    t.equal(count('next'), 14, 'requests for other paths');
  });
