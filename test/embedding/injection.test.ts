/*
 * Requests that have not come over a connection, as tools for tests create them: they lack some of what
 * those of node:http have.
 */
import type { IncomingHttpHeaders } from 'node:http';

import fastify, { type InjectOptions } from 'fastify';
import t from 'tap';

import {
  createPlantHandler,
  type HttpRequest,
  type HttpResponse,
  type PlantHandler,
} from '../../dist/index.js';
import { FERN, TOKEN } from '../client.js';
import { storeOf } from '../stores.js';

interface Injected {
  readonly method?: string;
  readonly url?: string;
  readonly headers?: IncomingHttpHeaders;
  readonly body?: string;
}

const HEADERS = {
  host: 'localhost',
  authorization: `Bearer ${TOKEN}`,
  'content-type': 'application/json',
};

type Inject = (handler: PlantHandler, parts: Injected) => Promise<number>;

/** How tools create a request and a response. Each resolves to the `error` of the answer, 0 for a 200. */
const TOOLS: Readonly<Record<string, Inject>> = {
  async 'inject of Fastify'(handler, parts) {
    const { method = 'POST', url = '/plants', headers = HEADERS, body = FERN } = parts;
    const app = fastify();
    app.addHook('onRequest', ({ raw }, reply) => void handler(raw, reply.raw));
    const options = { method, url, headers, payload: body } as InjectOptions;
    return errorIn((await app.inject(options)).body);
  },
  async 'objects that are no streams, as those of node-mocks-http'(handler, parts) {
    const { method = 'POST', url = '/plants', headers = HEADERS, body = FERN } = parts;
    const req: object = { method, url, headers, body, socket: {} };
    let sent = '';
    const res = {
      writableEnded: false,
      getHeader: () => undefined,
      setHeader: () => undefined,
      writeHead: () => undefined,
      write: (text: string) => (sent += text),
      end: () => (res.writableEnded = true),
    };
    await handler(req as HttpRequest, res as object as HttpResponse);
    return res.writableEnded ? errorIn(sent) : NaN;
  },
};

function errorIn(body: string): number {
  const { error = 0 } = JSON.parse(body) as { error?: number };
  return error;
}

const created = storeOf(async () => 'created');

for (const [tool, inject] of Object.entries(TOOLS))
  t.test(`the handler answers ${tool}`, async (t) => {
    const report = (message: string) => t.fail(message);
    const options = { store: created, tokens: [TOKEN], report, maxBodyBytes: 100 };
    const handler = createPlantHandler(options);
    const rows: readonly [error: number, parts: Injected][] = [
      [0, {}],
      [401, { headers: { host: 'localhost' } }],
      [404, { url: '/elsewhere' }],
      [405, { method: 'GET' }],
      [415, { headers: { ...HEADERS, 'content-type': 'text/plain' } }],
      [413, { body: FERN.padEnd(101) }],
      [422, { body: '{}' }],
      [0, { headers: { ...HEADERS, upgrade: 'h2c' } }],
    ];
    for (const [error, parts] of rows)
      t.equal(await inject(handler, parts), error, `error ${error}`);
    // Memory is released once a response is flushed.
    while (handler.bufferedBytes() > 0) await new Promise(setImmediate);
  });

t.test('the promise resolves even if neither a response nor a socket works', async (t) => {
  const reported: string[] = [];
  const report = (message: string) => void reported.push(message);
  const handler = createPlantHandler({ store: created, tokens: [TOKEN], report });
  const req: object = { method: 'POST', url: '/plants', headers: HEADERS, body: FERN, socket: {} };
  const res: object = { getHeader: () => undefined };
  await handler(req as HttpRequest, res as HttpResponse);
  t.strictSame(reported, ['a request failed', 'a response could not be sent']);
});
