import { AsyncLocalStorage } from 'node:async_hooks';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';

import t, { type Test } from 'tap';

import {
  createPlantHandler,
  type CommitMessage,
  type NewPlant,
  type PlantStore,
  type ResponseMessage,
} from '../dist/index.js';
import { STOP_TIMES } from '../dist/program/server/stop.js';
import { anyAnswer, connect, exchange, message, TOKEN } from './helpers/client.js';
import { rows } from './helpers/documents.js';
import { exactly } from './helpers/exactly.js';
import { FERN, inJson, IVY, MOSS } from './helpers/plants.js';
import { listen, listenTo, serve, startPlantServer } from './helpers/service.js';
import { gatedStore, openNewLog, storeOf } from './helpers/stores.js';
import { hangNext, holdNext, openWithFaults, untilAvailable } from './log/support.js';

/** The current asynchronous context: a request, or what a test names. */
const contexts = new AsyncLocalStorage<unknown>();

interface Observed<M> {
  readonly message: M;
  readonly context: unknown;
}

/** Observes a channel until the test is over. */
function observe<M>(t: Test, name: string): Observed<M>[] {
  const seen: Observed<M>[] = [];
  listenTo(t, name, (message) => {
    seen.push({ message: message as M, context: contexts.getStore() });
  });
  return seen;
}

const observeResponses = (t: Test) => observe<ResponseMessage>(t, 'plant-store:response');
const observeCommits = (t: Test) => observe<CommitMessage>(t, 'plant-store:commit');

/** The plants, the bytes and the error of each published batch. */
const batches = (seen: readonly Observed<CommitMessage>[]): unknown[][] =>
  seen.map(({ message: { plants, bytes, error } }) => [plants, bytes, error]);

/** The number that a client has given to a request. */
const numberOf = (request: unknown): string =>
  String((request as IncomingMessage | undefined)?.headers['x-number']);

/** The members of the messages. A question mark means that a message may lack the member. */
const OF_RESPONSES: Readonly<Record<keyof ResponseMessage, '' | '?'>> = {
  request: '?',
  response: '?',
  status: '',
  error: '',
};
const OF_COMMITS: Readonly<Record<keyof CommitMessage, '' | '?'>> = {
  store: '',
  plants: '',
  bytes: '?',
  durationMs: '',
  error: '?',
};

t.test('the documents list all members of the messages of channels', async (t) => {
  const list = (members: object) =>
    Object.entries(members)
      .map(([name, mark]) => name + String(mark))
      .join(', ');
  const [responses, commits] = rows('Channels').map(([, message]) => message);
  t.match(responses, `\`{ ${list(OF_RESPONSES)} }\``);
  t.match(commits, `\`{ ${list(OF_COMMITS)} }\``);
});

t.test('calls and messages of a request are in its asynchronous context', async (t) => {
  const seen = observeResponses(t);
  const calls: string[] = [];
  const called = (what: string, number: unknown): void =>
    void calls.push(`${what} for ${String(number)} in ${numberOf(contexts.getStore())}`);
  const store = storeOf(async ({ id }) => {
    called('add', id);
    await nextTurn();
    if (id === 5n) throw new Error('5');
    return 'created';
  });
  const report = (_: string, cause: unknown) => called('report', (cause as Error).message);
  const handler = createPlantHandler({ store, tokens: [TOKEN], report });
  const server = createServer((req, res) => {
    const next = (): void => {
      called('next', numberOf(req));
      res.end();
    };
    contexts.run(req, () => void handler(req, res, req.url === '/next' ? next : undefined));
  });
  const client = await connect(t, await listen(t, server), anyAnswer);
  const parts = [
    {},
    { headers: { Authorization: undefined } },
    { target: '/next' },
    { target: '/elsewhere' },
    { body: '{}' },
    {},
    {},
  ];
  const requests = parts.map(({ headers, ...rest }, id) => {
    const body = inJson({ ...IVY, id: BigInt(id) });
    return message({ body, ...rest, headers: { ...headers, 'X-Number': String(id) } });
  });
  // First all at once, so that several requests begin in one turn of the event loop; then each of
  // them in two pieces.
  client.send(Buffer.concat(requests));
  for (const request of requests) {
    client.send(request.subarray(0, -3));
    await nextTurn();
    client.send(request.subarray(-3));
  }
  for (let n = 0; n < 2 * requests.length; n++) await client.answer();

  const published = seen.map(({ message: { status, error, request }, context }) => {
    return `${status} ${error} for ${numberOf(request)} in ${numberOf(context)}`;
  });
  const expected = [
    ...['add for 0 in 0', '200 0 for 0 in 0', '401 401 for 1 in 1', 'next for 2 in 2'],
    ...['404 404 for 3 in 3', '400 422 for 4 in 4', 'add for 5 in 5', 'report for 5 in 5'],
    ...['500 500 for 5 in 5', 'add for 6 in 6', '200 0 for 6 in 6'],
  ];
  t.strictSame([...calls, ...published].sort(), [...expected, ...expected].sort());
  for (const { message, context } of seen) {
    t.strictSame(Object.keys(message), Object.keys(OF_RESPONSES));
    t.equal(message.request, context);
    t.equal((message.response as ServerResponse | undefined)?.req, context);
  }
});

t.test('an answer is published before it is sent', async (t) => {
  const { port, log } = await serve(t);
  const sizes: unknown[] = [];
  listenTo(t, 'plant-store:response', (message) => {
    const { request, response } = message as ResponseMessage;
    sizes.push([response?.headersSent, (request?.socket as Socket).bytesWritten, log.size]);
  });
  await exchange(t, port, message());
  t.strictSame(sizes, [[true, 0, 1]]);
});

t.test('an answer is not published after the client has closed the connection', async (t) => {
  const seen = observeResponses(t);
  const store = gatedStore();
  const { server, port } = await serve(t, { store });
  const closed = once(server, 'connection').then(([socket]) => once(socket as Socket, 'close'));
  const client = await connect(t, port);
  client.send(message(), message());
  await store.untilArrived(2);
  client.socket.destroy();
  await closed;
  store.letGo();
  await nextTurn();
  t.strictSame(seen, []);
});

t.test('an answer that the application has begun or changed is not published', async (t) => {
  const seen = observeResponses(t);
  const { handler } = await serve(t);
  const changes: readonly ((res: ServerResponse) => unknown)[] = [
    (res) => res.writeHead(200),
    (res) => res.destroy(),
    (res) => Object.assign(res, { writeHead: null }),
  ];
  for (const change of changes) {
    const server = createServer((req, res) => {
      change(res);
      void handler(req, res);
    });
    const client = await connect(t, await listen(t, server));
    client.send(message());
    await client.closed;
  }
  t.strictSame(seen, []);
});

/** The server of the program. */
const startServer = (t: Test, store: PlantStore) =>
  startPlantServer(t, { handler: createPlantHandler({ store, tokens: [TOKEN] }) });

t.test('answers of the server itself are published; at shutdown, with their request', async (t) => {
  const seen = observeResponses(t);
  const store = gatedStore();
  const server = await startServer(t, store);
  for (const malformed of ['this is not HTTP\r\n\r\n', `GET /${'x'.repeat(20_000)}`]) {
    const client = await connect(t, server.port);
    client.send(malformed);
    await client.closed;
  }
  const client = await connect(t, server.port);
  client.send(message());
  await store.untilArrived(1);
  t.intercept(STOP_TIMES, 'requestsMs', { value: 1 });
  const stopped = contexts.run('stop', () => server.stop());
  t.match(await client.answer(), { status: 503 });
  store.letGo();
  await stopped;
  const published = seen.map(({ message: { request, status, error }, context }) => [
    status,
    error,
    request?.method,
    context,
  ]);
  t.strictSame(published, [
    [400, 400, undefined, undefined],
    [431, 431, undefined, undefined],
    [503, 503, 'POST', 'stop'],
  ]);
});

t.test(
  'each batch of the log is published in the asynchronous context that opened the log',
  async (t) => {
    const seen = observeCommits(t);
    let now = 0;
    t.intercept(performance, 'now', { value: () => now });
    const { fs, log, content } = await contexts.run('open', () => openWithFaults(t));
    const add = (plant: NewPlant) => contexts.run('add', () => log.add(plant));
    const gate = holdNext(fs, 'write');
    const first = add(FERN);
    await gate.reached;
    t.strictSame(seen, [], 'not before it is durable');
    now = 5;
    const others = [add(IVY), add(MOSS), add(FERN)];
    gate.open();
    await Promise.all([first, ...others]);
    await add(IVY);
    const sizes = content()
      .split(/(?<=\n)/)
      .map((line) => Buffer.byteLength(line)) as [number, number, number];
    const batch = (durationMs: number) => ({
      context: 'open',
      message: { store: log.path, durationMs },
    });
    t.match(seen, exactly(batch(5), batch(0)));
    // A plant that is stored already is in no batch.
    t.strictSame(batches(seen), [
      [1, sizes[0], undefined],
      [2, sizes[1] + sizes[2], undefined],
    ]);
  },
);

t.test('a batch that hangs or fails is published once its outcome is known', async (t) => {
  const seen = observeCommits(t);
  const faults = { 'write 2': { fails: 'ENOSPC' }, 'write 3': { fails: 'EIO' } };
  const { fs, log } = await openWithFaults(t, faults);
  const gate = await hangNext(t, { fs, log }, 'write', [FERN]);
  t.strictSame(seen, []);
  gate.open();
  await untilAvailable(log);
  const { bytes } = log;
  const errors: unknown[] = [];
  for (const plant of [IVY, MOSS])
    await log.add(plant).catch((error: unknown) => errors.push(error));
  t.strictSame(batches(seen), [
    [1, bytes, undefined],
    [0, 0, errors[0]],
    [0, 0, errors[1]],
  ]);
});

t.test('a subscriber that throws changes no answer and no commit', async (t) => {
  const uncaught: string[] = [];
  process.setUncaughtExceptionCaptureCallback(({ message }) => uncaught.push(message));
  t.teardown(() => process.setUncaughtExceptionCaptureCallback(null));
  for (const name of ['plant-store:response', 'plant-store:commit'])
    listenTo(t, name, () => {
      throw new Error(name);
    });
  const { port } = await startServer(t, await openNewLog(t));
  const requests = [message({ body: inJson(IVY) }), message(), Buffer.from('x\r\n\r\n')];
  const statuses = [];
  for (const request of requests) statuses.push((await exchange(t, port, request)).status);
  t.strictSame(statuses, [200, 200, 400]);
  const commits = Array<string>(2).fill('plant-store:commit');
  t.strictSame(uncaught.sort(), [...commits, ...Array<string>(3).fill('plant-store:response')]);
});
