/*
 * Requests that have not come over a connection, as tools for tests create them: they lack some of what
 * those of node:http have.
 */
import { EventEmitter } from 'node:events';
import { IncomingMessage, ServerResponse, type IncomingHttpHeaders } from 'node:http';
import { Socket } from 'node:net';
import { Readable, Writable } from 'node:stream';

import t from 'tap';

import {
  createPlantHandler,
  type HttpRequest,
  type HttpResponse,
  type PlantHandler,
} from '../../dist/index.js';
import { FERN, TOKEN } from '../client.js';
import { ONE_AT_A_TIME } from '../http/support.js';
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
  // As `inject` of Hapi does.
  async 'streams without rawHeaders, and a socket that cannot be destroyed'(handler, parts) {
    const { method = 'POST', url = '/plants', headers = HEADERS, body = FERN } = parts;
    const stream = Readable.from([Buffer.from(body)]);
    const socket = new EventEmitter();
    const req = Object.assign(stream, { method, url, headers, httpVersion: '1.1', socket });
    let sent = '';
    const res = new ServerResponse(Object.assign(new IncomingMessage(new Socket()), { method }));
    const sink = new Writable({
      write(chunk: Buffer, _encoding, done) {
        sent += chunk.toString();
        setImmediate(done);
      },
    });
    const sender: { assignSocket(socket: Writable): void } = res;
    sender.assignSocket(sink);
    const finished = new Promise((resolve) => res.once('finish', resolve));
    await handler(req, res);
    await finished;
    return errorIn(sent.slice(sent.indexOf('\r\n\r\n')));
  },
  // As node-mocks-http does.
  async 'objects that are no streams'(handler, parts) {
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
    const options = { store: created, tokens: [TOKEN], report };
    const handler = createPlantHandler({ ...options, ...ONE_AT_A_TIME });
    const rows: readonly [error: number, parts: Injected][] = [
      [0, {}],
      [401, { headers: { host: 'localhost' } }],
      [404, { url: '/elsewhere' }],
      [405, { method: 'GET' }],
      [415, { headers: { ...HEADERS, 'content-type': 'text/plain' } }],
      [413, { body: FERN.padEnd(ONE_AT_A_TIME.maxBodyBytes + 1) }],
      [400, { body: 'x' }],
      [422, { body: '{}' }],
      [0, { headers: { ...HEADERS, upgrade: 'h2c' } }],
    ];
    for (const [error, parts] of rows)
      t.equal(await inject(handler, parts), error, `error ${error}`);
    t.equal(await inject(handler, {}), 0, 'the memory of earlier requests is released');
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
