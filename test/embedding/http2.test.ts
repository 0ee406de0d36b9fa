import { once } from 'node:events';
import * as http2 from 'node:http2';
import type { Socket } from 'node:net';

import t, { type Test } from 'tap';

import { DRAIN } from '../../dist/http/memory.js';
import { PlantStoreError, type PlantHandlerOptions } from '../../dist/index.js';
import { connect, FERN, TOKEN } from '../client.js';
import {
  FLAGS,
  FRAMES,
  HTTP2_BEGINNING,
  http2Answer,
  http2Fields,
  http2Frame,
  http2Post,
  http2Session,
} from '../http2.js';
import { ONE_AT_A_TIME } from '../http/support.js';
import { listen, serve, type Service } from '../service.js';
import { gatedStore, storeOf } from '../stores.js';

const { NGHTTP2_NO_ERROR, NGHTTP2_CANCEL } = http2.constants;

/** Serves the handler in HTTP/2 in cleartext. */
async function serveHttp2(t: Test, options?: Partial<PlantHandlerOptions>): Promise<Service> {
  const service = await serve(t, options);
  const server = http2.createServer(service.handler);
  return { ...service, server, port: await listen(t, server) };
}

/** Resolves to the request and the response that the server gets next. */
function nextRequest({ server }: Service) {
  return once(server, 'request') as Promise<[http2.Http2ServerRequest, http2.Http2ServerResponse]>;
}

/** Sends a plant, and returns its stream, which may be reset. */
function sendPlant(session: http2.ClientHttp2Session): http2.ClientHttp2Stream {
  return http2Post(session)
    .end(FERN)
    .on('error', () => undefined);
}

/** The status of a plant that is sent in a connection of its own. */
async function statusOfPlant(t: Test, { port }: Service): Promise<number> {
  return (await http2Answer(sendPlant(http2Session(t, port)))).status;
}

t.test('requests get the same answers as in HTTP/1', async (t) => {
  const { port, log } = await serveHttp2(t, { maxBodyBytes: 100 });
  const session = http2Session(t, port);
  const rows: readonly [error: number, headers: http2.OutgoingHttpHeaders, body: string][] = [
    [401, { authorization: '' }, FERN],
    [401, { authorization: 'Bearer other' }, FERN],
    [404, { ':path': '/elsewhere' }, FERN],
    [405, { ':method': 'PUT' }, FERN],
    [415, { 'content-type': 'text/plain' }, FERN],
    [431, Object.fromEntries(Array.from({ length: 100 }, (_, n) => [`x-${n}`, 'x'])), FERN],
    [413, { 'content-length': 101 }, ' '.repeat(101)],
    [413, {}, ' '.repeat(101)],
    [400, {}, ''],
    [422, {}, '{}'],
  ];
  for (const [error, headers, body] of rows) {
    const answer = await http2Answer(http2Post(session, headers).end(body));
    t.equal(answer.status, [401, 404, 405, 431].includes(error) ? error : 400);
    t.match(JSON.parse(answer.body), { error });
    const next = { status: 200, body: '{"name":"Boston fern","tag":"indoor"}' };
    t.match(await http2Answer(sendPlant(session)), next);
  }
  const head = http2Post(session, { ':method': 'HEAD' }).end();
  t.match(await http2Answer(head, 'HEAD'), { status: 405, body: /^$/ });
  t.equal(log.size, 1);
});

t.test('a body that is too large or too slow is answered, and reset if it goes on', async (t) => {
  t.intercept(DRAIN, 'maxBytes', { value: 1_000 });
  const { port } = await serveHttp2(t, { maxBodyBytes: 100, bodyTimeoutMs: 100 });
  const session = http2Session(t, port);
  const warnings: Error[] = [];
  const onWarning = (warning: Error) => void warnings.push(warning);
  process.on('warning', onWarning);
  t.teardown(() => process.off('warning', onWarning));
  for (const [body, status, error] of [
    ['{', 408, 408],
    [' '.repeat(101), 400, 413],
  ] as const) {
    const stream = http2Post(session);
    stream.write(body);
    t.match(await http2Answer(stream), { status, body: `"error":${error}` });
    // More than is drained. The stream is not reset before, so the client gets its answer.
    stream.on('error', () => undefined).write(' '.repeat(1_001));
    if (!stream.closed) await once(stream, 'close');
  }
  t.strictSame(warnings, [], 'no connection-specific header');
});

t.test('a stream that is reset within its body stores nothing', async (t) => {
  const service = await serveHttp2(t, ONE_AT_A_TIME);
  const head = http2Fields(
    ['authorization', `Bearer ${TOKEN}`],
    ['content-type', 'application/json'],
  );
  // All of a plant, but not the end of the stream.
  const plant = Buffer.concat([
    http2Frame(FRAMES.HEADERS, FLAGS.END_HEADERS, head),
    http2Frame(FRAMES.DATA, 0, Buffer.from('{"id":8,"name":"incomplete"}')),
  ]);
  for (const code of [NGHTTP2_NO_ERROR, NGHTTP2_CANCEL])
    for (const when of ['at once', 'later']) {
      const { socket } = await connect(t, service.port);
      socket.write(HTTP2_BEGINNING);
      await once(socket, 'data');
      const requested = nextRequest(service);
      const reset = http2Frame(FRAMES.RST_STREAM, 0, Buffer.from([0, 0, 0, code]));
      socket.write(when === 'at once' ? Buffer.concat([plant, reset]) : plant);
      const [, response] = await requested;
      const closed = once(response, 'close');
      // The handler waits for the rest of the body by the end of the next turn.
      await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
      if (when === 'later') socket.write(reset);
      await closed;
      t.equal(
        await statusOfPlant(t, service),
        200,
        `code ${code}, ${when}: its memory is released`,
      );
      t.equal(service.log.size, 1, `code ${code}, ${when}`);
    }
});

t.test('a client may leave while its plant is stored', async (t) => {
  for (const leave of ['the stream', 'the session'] as const)
    for (const status of [200, 503]) {
      const gate = gatedStore();
      const store = storeOf(async (plant) => {
        await gate.add(plant);
        if (status === 503) throw new PlantStoreError('unavailable', 'x');
        return 'created';
      });
      const service = await serveHttp2(t, { store, ...ONE_AT_A_TIME });
      const session = http2Session(t, service.port);
      const requested = nextRequest(service);
      const stream = sendPlant(session);
      const [, response] = await requested;
      await gate.arrived(1);
      if (leave === 'the stream') stream.close(NGHTTP2_CANCEL);
      else session.destroy();
      await once(response, 'close');
      gate.letGo();
      t.equal(await statusOfPlant(t, service), status, `${leave}: its memory is released`);
      t.strictSame(service.reported, []);
    }
});

t.test('an answer that is never read is released with its stream', async (t) => {
  const service = await serveHttp2(t, ONE_AT_A_TIME);
  for (const leave of ['the stream', 'the session'] as const) {
    const session = http2Session(t, service.port, { initialWindowSize: 0 });
    const requested = nextRequest(service);
    const stream = sendPlant(session);
    const [[, response]] = await Promise.all([requested, once(stream, 'response')]);
    t.equal(await statusOfPlant(t, service), 503, `${leave}: the answer is held`);
    const closed = once(response, 'close');
    if (leave === 'the stream') stream.close(NGHTTP2_CANCEL);
    else session.destroy();
    await closed;
    t.equal(await statusOfPlant(t, service), 200, `${leave}: it is released`);
  }
});

t.test('responses leave no listeners on their connection', async (t) => {
  const { port, server } = await serveHttp2(t);
  const connected = once(server, 'connection') as Promise<[Socket]>;
  // So that each response is flushed in pieces.
  const session = http2Session(t, port, { initialWindowSize: 10 });
  const [socket] = await connected;
  const before = socket.listenerCount('close');
  for (let i = 0; i < 20; i++) t.match(await http2Answer(sendPlant(session)), { status: 200 });
  t.equal(socket.listenerCount('close'), before);
});

t.test('a request that the application destroys is closed', async (t) => {
  const { handler, log } = await serve(t);
  let destroyed = 0;
  const server = http2.createServer((req, res) => {
    if (destroyed === 0) req.destroy();
    void handler(req, res);
    if (destroyed === 1) req.destroy(new Error('a reason of its own'));
    destroyed++;
  });
  const session = http2Session(t, await listen(t, server));
  for (const when of ['before the handler runs', 'while the handler reads it']) {
    await once(sendPlant(session), 'close');
    t.equal(log.size, 0, when);
  }
});
