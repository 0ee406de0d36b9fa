import { once } from 'node:events';
import * as http2 from 'node:http2';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';

import t, { type Test } from 'tap';

import { DRAIN } from '../../dist/http/limits.js';
import { PlantStoreError, type PlantHandlerOptions } from '../../dist/index.js';
import { TOKEN } from '../helpers/client.js';
import { expectConformance, type Received } from '../helpers/conformance.js';
import { FERN_JSON } from '../helpers/plants.js';
import { untilReleased, listen, serve, type Service } from '../helpers/service.js';
import { gatedStore } from '../helpers/stores.js';

const { NGHTTP2_NO_ERROR, NGHTTP2_CANCEL } = http2.constants;

/** Starts a server of the handler for HTTP/2 in cleartext. */
async function serveHttp2(t: Test, options?: Partial<PlantHandlerOptions>): Promise<Service> {
  const service = await serve(t, options);
  const server = http2.createServer(service.handler);
  return { ...service, server, port: await listen(t, server) };
}

/** Resolves to the response with which the server will answer its next request. */
async function nextResponse({ server }: Service): Promise<http2.Http2ServerResponse> {
  const [, response] = (await once(server, 'request')) as [unknown, http2.Http2ServerResponse];
  return response;
}

/** Opens an HTTP/2 connection to a server until the test is over. */
function http2Session(
  t: Test,
  port: number,
  options: http2.ClientSessionOptions = {},
): http2.ClientHttp2Session {
  const session = http2.connect(`http://127.0.0.1:${port}`, options);
  session.on('error', () => undefined);
  t.teardown(() => session.destroy());
  return session;
}

/** Begins a request that creates a plant, unless other header fields are given. */
function http2Post(
  session: http2.ClientHttp2Session,
  headers: http2.OutgoingHttpHeaders = {},
): http2.ClientHttp2Stream {
  return session.request({
    ':method': 'POST',
    ':path': '/plants',
    authorization: `Bearer ${TOKEN}`,
    'content-type': 'application/json',
    ...headers,
  });
}

/**
 * Resolves to the answer to a request. Rejects if the OpenAPI document does not describe the
 * answer.
 */
async function http2Answer(stream: http2.ClientHttp2Stream, method?: string): Promise<Received> {
  const [headers] = (await once(stream, 'response')) as [
    http2.IncomingHttpHeaders & { ':status': number },
  ];
  const status = headers[':status'];
  const body = await text(stream);
  expectConformance({ status, headers, body }, method);
  return { status, headers, body };
}

/** Sends a plant, and returns the stream, which may be reset. */
function sendPlant(session: http2.ClientHttp2Session): http2.ClientHttp2Stream {
  return http2Post(session)
    .end(FERN_JSON)
    .on('error', () => undefined);
}

t.test('requests over HTTP/2 get the same answers as over HTTP/1', async (t) => {
  const { port, log } = await serveHttp2(t, { maxBodyBytes: 100 });
  const session = http2Session(t, port);
  const rows: readonly [error: number, headers: http2.OutgoingHttpHeaders, body: string][] = [
    [401, { authorization: '' }, FERN_JSON],
    [404, { ':path': '/elsewhere' }, FERN_JSON],
    [405, { ':method': 'PUT' }, FERN_JSON],
    [431, Object.fromEntries(Array.from({ length: 100 }, (_, n) => [`x-${n}`, 'x'])), FERN_JSON],
    [413, {}, ' '.repeat(101)],
    [422, {}, '{}'],
  ];
  for (const [error, headers, body] of rows) {
    const answer = await http2Answer(http2Post(session, headers).end(body));
    t.equal(answer.status, [401, 404, 405, 431].includes(error) ? error : 400);
    t.match(JSON.parse(answer.body), { error });
    const next = { status: 200, body: FERN_JSON.replace('"id":7,', '') };
    t.match(await http2Answer(sendPlant(session)), next);
  }
  const head = http2Post(session, { ':method': 'HEAD' }).end();
  t.match(await http2Answer(head, 'HEAD'), { status: 405, body: /^$/ });
  t.equal(log.size, 1);
});

t.test('a stream with a large or slow body is answered, and reset if it goes on', async (t) => {
  t.intercept(DRAIN, 'maxBytes', { value: 1_000 });
  const { port } = await serveHttp2(t, { maxBodyBytes: 100, bodyTimeoutMs: 100 });
  const session = http2Session(t, port);
  const emitted = t.capture(process, 'emitWarning');
  for (const [body, status, error] of [
    ['{', 408, 408],
    [' '.repeat(101), 400, 413],
  ] as const) {
    const stream = http2Post(session);
    stream.write(body);
    t.match(await http2Answer(stream), { status, body: `"error":${error}` });
    // More bytes than are drained. Until then the stream is not reset, so the client gets the
    // answer.
    stream.on('error', () => undefined).write(' '.repeat(1_001));
    if (!stream.closed) await once(stream, 'close');
  }
  t.strictSame(emitted(), [], 'no connection-specific header');
});

t.test('a stream that is reset within its body stores nothing', async (t) => {
  const service = await serveHttp2(t);
  for (const code of [NGHTTP2_NO_ERROR, NGHTTP2_CANCEL]) {
    const socket = connect(service.port, '127.0.0.1');
    const requested = nextResponse(service);
    // The whole plant, but not the end of the stream.
    http2Post(http2Session(t, service.port, { createConnection: () => socket })).write(FERN_JSON);
    const closed = once(await requested, 'close');
    // By the end of the next turn, the handler waits for the rest of the body.
    await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
    // A RST_STREAM frame (RFC 9113, section 6.4), written by hand: with NO_ERROR, Node's client
    // would first end the stream.
    const [length, type, stream] = [
      [0, 0, 4],
      [3, 0],
      [0, 0, 0, 1],
    ];
    socket.write(Buffer.from([...length, ...type, ...stream, 0, 0, 0, code]));
    await closed;
    await untilReleased(service);
    t.equal(service.log.size, 0, `code ${code}`);
  }
});

/** Ways in which a client leaves before it has read its answer. */
const LEAVES: Readonly<Record<string, (stream: http2.ClientHttp2Stream) => void>> = {
  'resets its stream': (stream) => stream.close(NGHTTP2_CANCEL),
  'closes its connection': (stream) => stream.session?.destroy(),
};

for (const [how, leave] of Object.entries(LEAVES))
  t.test(`memory is released if a client ${how} before it has read its answer`, async (t) => {
    for (const failure of [undefined, new PlantStoreError('unavailable', 'x')]) {
      const store = gatedStore(failure);
      const service = await serveHttp2(t, { store });
      const requested = nextResponse(service);
      const stream = sendPlant(http2Session(t, service.port));
      const closed = once(await requested, 'close');
      await store.untilArrived(1);
      leave(stream);
      await closed;
      store.letGo();
      await untilReleased(service);
      t.strictSame(service.reported, [], 'while its plant is stored');
    }

    const service = await serveHttp2(t);
    const requested = nextResponse(service);
    const stream = sendPlant(http2Session(t, service.port, { settings: { initialWindowSize: 0 } }));
    const [response] = await Promise.all([requested, once(stream, 'response')]);
    t.ok(service.handler.bufferedBytes() > 0, 'its answer is not flushed');
    const closed = once(response, 'close');
    leave(stream);
    await closed;
    await untilReleased(service);
  });

t.test('a request that the application destroys does not end the process', async (t) => {
  const { handler, log } = await serve(t);
  const moments = ['before the handler runs', 'while it is read', 'while it is refused'];
  const server = http2.createServer((req, res) => {
    const moment = moments.shift();
    if (moment?.startsWith('before')) req.destroy();
    if (moment?.endsWith('refused')) req.headers.authorization = '';
    void handler(req, res);
    if (moment?.startsWith('while')) req.destroy(new Error('a reason of its own'));
  });
  const session = http2Session(t, await listen(t, server));
  for (const moment of [...moments]) {
    await once(sendPlant(session).resume(), 'close');
    t.equal(log.size, 0, moment);
  }
});
