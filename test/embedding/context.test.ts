import { AsyncLocalStorage } from 'node:async_hooks';
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';

import t from 'tap';

import { createPlantHandler } from '../../dist/index.js';
import { REPORT_RATE } from '../../dist/report.js';
import { anyAnswer, chunk, CHUNKED, connect, message, TOKEN } from '../client.js';
import { listen } from '../service.js';
import { storeOf } from '../stores.js';

/** The id of the request whose context is current; the application enters it before it calls the handler. */
const contexts = new AsyncLocalStorage<string>();

const REQUESTS = 40;

/** A plant that comes with its head or in pieces, or a request for another path, whose context is its id. */
function partsOf(id: number): Buffer[] {
  const headers = { 'X-Context': String(id) };
  const body = `{"id":${id},"name":"fern","tag":"${id}"}`;
  if (id % 3 === 0) return [message({ headers, body })];
  if (id % 3 === 1) return [message({ target: `/${id}`, headers })];
  const head = message({ headers: { ...headers, ...CHUNKED }, body: chunk(body.slice(0, 9)) });
  return [head, Buffer.concat([body.slice(9), ''].map(chunk))];
}

for (const isParsed of [false, true])
  t.test(
    `callbacks for a request${isParsed ? ' with a parsed body' : ''} run in its asynchronous context`,
    async (t) => {
      const calls = { add: 0, report: 0, next: 0 };
      const called = (what: keyof typeof calls, context: string | undefined): void => {
        calls[what]++;
        t.equal(contexts.getStore(), context, what);
      };
      const store = storeOf(async ({ id, tag }) => {
        called('add', tag);
        // Requests are interleaved: each continues when others have begun.
        await new Promise(setImmediate);
        if (id % 2n === 0n) throw new Error(tag);
        return 'created';
      });
      const report = (_: string, cause: unknown) => called('report', (cause as Error).message);
      const handler = createPlantHandler({ store, tokens: [TOKEN], report });
      const server = createServer((req, res) =>
        contexts.run(String(req.headers['x-context']), async () => {
          if (isParsed) Object.assign(req, { body: await text(req) });
          void handler(req, res, () => {
            called('next', req.url?.slice(1));
            res.end();
          });
        }),
      );
      const port = await listen(t, server);
      const clients = await Promise.all([1, 2, 3, 4].map(() => connect(t, port, anyAnswer)));
      for (let id = 1; id <= REQUESTS; id++)
        for (const part of partsOf(id)) {
          clients[id % clients.length]?.send(part);
          await new Promise(setImmediate);
        }
      for (let id = 1; id <= REQUESTS; id++) await clients[id % clients.length]?.answer();
      t.strictSame(calls, { add: 26, report: REPORT_RATE.count, next: 14 });
    },
  );
