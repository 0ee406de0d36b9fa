import { AsyncLocalStorage } from 'node:async_hooks';
import { createServer } from 'node:http';
import * as http2 from 'node:http2';
import type { Server } from 'node:net';
import { text } from 'node:stream/consumers';

import express from 'express';
import fastify from 'fastify';
import Koa from 'koa';
import t, { type Test } from 'tap';

import { createPlantHandler, type PlantHandler } from '../../dist/index.js';
import { REPORT_RATE } from '../../dist/report.js';
import { chunk, connect, message, TOKEN } from '../client.js';
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

interface Application {
  readonly makeServer: (handler: PlantHandler, seen: Seen) => Server | Promise<Server>;
  readonly speaks?: 'HTTP/2';
}

const elsewhere = (seen: Seen, req: { url?: string | undefined }) => (): void => {
  seen.push(['next', req.url?.slice(1), contexts.getStore()]);
};

const APPLICATIONS: Readonly<Record<string, Application>> = {
  'node:http': {
    makeServer: (handler, seen) =>
      createServer((req, res) =>
        enter(req, () =>
          handler(req, res, () => {
            elsewhere(seen, req)();
            res.end();
          }),
        ),
      ),
  },
  'node:http, after a body parser': {
    makeServer: (handler, seen) =>
      createServer((req, res) =>
        enter(req, () => {
          void text(req).then((body) =>
            handler(Object.assign(req, { body }), res, () => {
              elsewhere(seen, req)();
              res.end();
            }),
          );
        }),
      ),
  },
  'node:http2': {
    makeServer: (handler, seen) =>
      http2.createServer((req, res) =>
        enter(req, () =>
          handler(req, res, () => {
            elsewhere(seen, req)();
            res.end();
          }),
        ),
      ),
    speaks: 'HTTP/2',
  },
  Express: {
    makeServer: (handler, seen) => {
      const app = express();
      app.use((req, _, next) => enter(req, next));
      app.use(handler);
      app.use((req, res) => {
        elsewhere(seen, req)();
        res.end();
      });
      return createServer(app);
    },
  },
  'Express, after express.json()': {
    makeServer: (handler, seen) => {
      const app = express();
      app.use((req, _, next) => enter(req, next));
      app.use(express.json());
      app.use(handler);
      app.use((req, res) => {
        elsewhere(seen, req)();
        res.end();
      });
      return createServer(app);
    },
  },
  Fastify: {
    makeServer: async (handler, seen) => {
      const app = fastify();
      app.addHook('onRequest', (request, reply, next) =>
        enter(request, () => void handler(request.raw, reply.raw, next)),
      );
      app.setNotFoundHandler((request, reply) => {
        elsewhere(seen, request)();
        void reply.send('');
      });
      await app.ready();
      return app.server;
    },
  },
  Koa: {
    makeServer: (handler, seen) => {
      const app = new Koa();
      app.use((ctx, next) => contexts.run(String(ctx.headers['x-context']), next));
      app.use((ctx, next) => {
        ctx.respond = false;
        void handler(ctx.req, ctx.res, () => {
          ctx.respond = true;
          void next();
        });
      });
      app.use((ctx) => {
        elsewhere(seen, ctx)();
        ctx.res.end();
      });
      const callback = app.callback();
      return createServer((req, res) => void callback(req, res));
    },
  },
};

const PLANTS = 40;

/** Sends plants on several connections at once, some of their bodies in pieces. */
async function sendPlants(t: Test, port: number): Promise<void> {
  const clients = await Promise.all([1, 2, 3, 4].map(() => connect(t, port, () => undefined)));
  for (let id = 1; id <= PLANTS; id++) {
    const client = clients[id % clients.length];
    const headers = { 'X-Context': String(id) };
    const body = `{"id":${id},"name":"fern","tag":"${id}"}`;
    const chunked = { 'Content-Length': undefined, 'Transfer-Encoding': 'chunked' };
    if (id % 3 === 0) client?.send(message({ headers, body }));
    else if (id % 3 === 1)
      client?.send(`GET /${id} HTTP/1.1\r\nHost: localhost\r\nX-Context: ${id}\r\n\r\n`);
    else {
      client?.send(message({ headers: { ...headers, ...chunked }, body: chunk(body.slice(0, 9)) }));
      await new Promise(setImmediate);
      client?.send(chunk(body.slice(9)), chunk(''));
    }
  }
  for (let id = 1; id <= PLANTS; id++) await clients[id % clients.length]?.answer();
}

async function sendPlantsByHttp2(t: Test, port: number): Promise<void> {
  const session = http2.connect(`http://127.0.0.1:${port}`);
  t.teardown(() => session.destroy());
  const responses = Array.from({ length: PLANTS }, async (_, index) => {
    const id = index + 1;
    const body = `{"id":${id},"name":"fern","tag":"${id}"}`;
    const request = session.request({
      ':method': 'POST',
      ':path': id % 3 === 1 ? `/${id}` : '/plants',
      authorization: `Bearer ${TOKEN}`,
      'content-type': 'application/json',
      'x-context': String(id),
    });
    request.write(body.slice(0, 9));
    if (id % 3 === 2) await new Promise(setImmediate);
    request.end(body.slice(9));
    await text(request);
  });
  await Promise.all(responses);
}

for (const [name, { makeServer, speaks }] of Object.entries(APPLICATIONS))
  t.test(`${name}: callbacks for a request run in its asynchronous context`, async (t) => {
    const seen: Seen = [];
    const port = await listen(t, await makeServer(observedHandler(seen), seen));
    await (speaks === 'HTTP/2' ? sendPlantsByHttp2(t, port) : sendPlants(t, port));
    for (const [what, expected, context] of seen)
      t.equal(context, expected, `${what} for request ${expected ?? ''}`);
    const count = (what: string): number => seen.filter(([each]) => each === what).length;
    t.equal(count('store.add'), 26, 'plants that came with their heads, and in pieces');
    t.equal(count('report'), REPORT_RATE.count, 'plants that the store failed to add');
    t.equal(count('next'), 14, 'requests for other paths');
  });
