import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { connect as connectTo } from 'node:net';
import { text } from 'node:stream/consumers';

import t, { type Test } from 'tap';

import {
  createPlantHandler,
  PlantStoreError,
  type HttpRequest,
  type HttpResponse,
  type PlantHandler,
  type PlantHandlerOptions,
} from '../../dist/index.js';
import {
  anyAnswer,
  chunkedMessage,
  connect,
  exchange,
  expectFailure,
  message,
  TOKEN,
} from '../helpers/client.js';
import { exactly } from '../helpers/exactly.js';
import { FERN, FERN_JSON } from '../helpers/plants.js';
import { untilReleased, listen, serve, type Service } from '../helpers/service.js';
import { gatedStore, storeOf } from '../helpers/stores.js';
import { expectAnswers, INJECTED } from './injected.js';

type Application = (handler: PlantHandler, req: IncomingMessage, res: ServerResponse) => void;

/** Serves the handler in an application that decides when and with which arguments to call it. */
async function embed(
  t: Test,
  application: Application,
  options?: Partial<PlantHandlerOptions>,
): Promise<Service> {
  const service = await serve(t, options);
  const server = createServer((req, res) => application(service.handler, req, res));
  return { ...service, server, port: await listen(t, server) };
}

type Act = (res: ServerResponse, req: IncomingMessage) => unknown;

/** An application that does something before it calls the handler. */
const before =
  (act: Act): Application =>
  (handler, req, res) => {
    act(res, req);
    void handler(req, res);
  };

/** An application that does something while the handler has the request. */
const meanwhile =
  (act: Act): Application =>
  (handler, req, res) => {
    void handler(req, res);
    act(res, req);
  };

const NO_TOKEN = message({ headers: { Authorization: undefined } });

t.test('all but POST /plants is passed to next, before anything else is checked', async (t) => {
  const { port, reported } = await embed(t, (handler, req, res) => {
    void handler(req, res, (...args: unknown[]) => {
      t.strictSame(args, [], 'next gets no arguments');
      t.notOk(req.readableDidRead, 'the body is not read');
      t.notOk(res.headersSent, 'nothing is sent');
      t.strictSame(res.getHeaderNames(), [], 'no header is set');
      void text(req).then((body) => res.end(`application: ${body}`));
    });
  });
  const faults = {
    ...{ Authorization: undefined, 'Content-Type': 'text/plain', Host: 'a/b' },
    ...{ Upgrade: 'h2c' },
  };
  const others = [
    ...['/', '/plants/', '//plants', 'http:///plant', '/plants/7'].map((target) => ({ target })),
    ...['GET', 'PUT', 'DELETE', 'OPTIONS', 'PATCH'].map((method) => ({ method })),
  ];
  for (const headers of [{}, faults])
    for (const parts of others) {
      const request = message({ headers, body: 'a body', ...parts });
      const answer = await exchange(t, port, request, anyAnswer);
      t.match(answer, { status: 200, text: 'application: a body' }, JSON.stringify(parts));
    }
  const invalidHost = message({ headers: { Host: 'a/b' } });
  const statuses = [];
  for (const request of [message(), invalidHost, NO_TOKEN, message({ target: '/plants?a' })])
    statuses.push((await exchange(t, port, request)).status);
  t.strictSame(statuses, [200, 400, 401, 200]);
  t.strictSame(reported, []);
});

const readAll: Application = (handler, req, res) => void text(req).then(() => handler(req, res));

interface ExpectedAnswer {
  readonly status: number;
  readonly body?: string | RegExp;
}

/**
 * The application is at fault. The message does not ask for a retry, which would fail in the same
 * way.
 */
const CONSUMED: ExpectedAnswer = { status: 500, body: /"message":"(?!.*again)/ };

/** What applications do with a body before they call the handler, and the answer. */
const READERS: Readonly<
  Record<string, readonly [Application, body: string, answer: ExpectedAnswer]>
> = {
  'reads all of the body': [readAll, FERN_JSON, CONSUMED],
  'reads a part of the body': [
    (handler, req, res) => {
      req.once('data', () => {
        req.pause();
        void handler(req, res);
      });
    },
    FERN_JSON,
    CONSUMED,
  ],
  'decodes the body': [before((_, req) => req.setEncoding('utf8')), FERN_JSON, CONSUMED],
  'listens to data of the body': [
    before((_, req) => req.on('data', () => undefined)),
    FERN_JSON,
    CONSUMED,
  ],
  'listens to readable of the body': [
    before((_, req) => req.on('readable', () => void req.read())),
    FERN_JSON,
    CONSUMED,
  ],
  'reads all of an empty body': [readAll, '', { status: 400 }],
  'leaves another body, but reads nothing': [
    before((_, req) => Object.assign(req, { body: { id: 8, name: 'other' } })),
    FERN_JSON,
    { status: 200, body: FERN.name },
  ],
};

for (const [what, [application, body, expected]] of Object.entries(READERS))
  t.test(`the answer is right if the application ${what} before the handler`, async (t) => {
    const reports: string[] = [];
    const report = (message: string) => void reports.push(message);
    const { port, log } = await embed(t, application, { report });
    const inChunks = chunkedMessage(...(body.match(/.{1,20}/g) ?? []));
    for (const request of [message({ body }), inChunks])
      t.match(await exchange(t, port, request), expected);
    const remedy = /^the application has read or decoded the body .* mount the handler/;
    t.match(reports, exactly(...(expected === CONSUMED ? [remedy, remedy] : [])));
    t.equal(log.size, expected.status === 200 ? 1 : 0);
  });

t.test('the promise of the handler resolves once the response is ended', async (t) => {
  const store = gatedStore();
  const settled: string[] = [];
  const application: Application = (handler, req, res) => {
    void handler(req, res).then((value: unknown) => {
      t.equal(value, undefined);
      t.ok(res.writableEnded || res.destroyed);
      settled.push(String(req.headers['x-about']));
    });
  };
  const { port } = await embed(t, application, { store });
  const request = (about: string, body = FERN_JSON) =>
    message({ headers: { 'X-About': about }, body });
  const stored = exchange(t, port, request('stored'));
  await store.untilArrived(1);
  await exchange(t, port, request('refused', '{}'));
  t.strictSame(settled, ['refused'], 'a plant that is pending has not settled it');
  store.letGo();
  await stored;
  const client = await connect(t, port);
  client.send(request('aborted').subarray(0, -1));
  await exchange(t, port, request('read'));
  client.socket.destroy();
  while (settled.length < 4) await new Promise(setImmediate);
  t.strictSame(settled.sort(), ['aborted', 'read', 'refused', 'stored']);
});

const throwing = (): never => {
  throw new Error('x');
};

t.test('the handler throws or rejects only with what next throws or rejects with', async (t) => {
  const nexts: Readonly<Record<string, () => unknown>> = {
    'resolves: undefined': () => Promise.resolve('ignored'),
    'rejects: x': async () => throwing(),
    'throws: x': throwing,
  };
  for (const [expected, next] of Object.entries(nexts)) {
    const { port } = await embed(t, (handler, req, res) => {
      const answer = (outcome: string): unknown => res.end(outcome);
      try {
        void handler(req, res, next).then(
          (value: unknown) => answer(`resolves: ${String(value)}`),
          (error: unknown) => answer(`rejects: ${(error as Error).message}`),
        );
      } catch (error) {
        answer(`throws: ${(error as Error).message}`);
      }
    });
    const answer = await exchange(t, port, message({ target: '/elsewhere' }), anyAnswer);
    t.match(answer.text, expected);
  }
});

const revoked = Proxy.revocable({}, {});
revoked.revoke();

/**
 * What a store may throw that is not a conflict, and the status of the answer, if there is one.
 */
const REASONS: Readonly<Record<string, readonly [status: number | undefined, reason: unknown]>> = {
  'a damaged store': [503, new PlantStoreError('damaged', 'x')],
  'an Error that looks like ours': [500, Object.assign(new Error('x'), { code: 'conflict' })],
  undefined: [500, undefined],
  'an object that throws whatever is done with it': [undefined, revoked.proxy],
};

for (const [about, [status, reason]] of Object.entries(REASONS))
  t.test(`a store that throws ${about}, or rejects with it, ends the request`, async (t) => {
    const fail = (): never => {
      throw reason;
    };
    const close = async () => void t.fail('the handler has closed the store');
    for (const add of [fail, async () => fail()]) {
      const { port, handler, reported } = await serve(t, { store: { add, close } });
      const client = await connect(t, port);
      client.send(message());
      if (status === undefined) await client.closed;
      else {
        expectFailure(t, await client.answer(), { status }, about);
        t.strictSame(reported, status === 500 ? [reason] : []);
      }
      t.equal(handler.bufferedBytes(), 0, 'its memory is released');
    }
  });

const PENDING = [message(), message({ body: '{}' })];

for (const application of [before, meanwhile])
  t.test(`a response that the application ends is not changed: ${application.name}`, async (t) => {
    const { port, reported } = await embed(
      t,
      application((res) => res.end('theirs')),
    );
    const client = await connect(t, port, anyAnswer);
    const requests = application === before ? [NO_TOKEN, ...PENDING] : PENDING;
    for (const request of [...requests, ...requests]) {
      client.send(request);
      t.match(await client.answer(), { status: 200, body: 'theirs' });
    }
    t.strictSame(reported, []);
  });

/** Applications whose responses cannot be sent, and whether the handler reports this. */
const SPOILING: Readonly<Record<string, readonly [application: Application, isReported: boolean]>> =
  {
    'has begun': [before((res) => res.write('theirs')), false],
    destroys: [meanwhile((res) => res.destroy()), false],
    'gives a writeHead that throws': [before((res) => (res.writeHead = throwing)), true],
    'gives an end that throws': [before((res) => (res.end = throwing)), true],
  };

for (const [what, [application, isReported]] of Object.entries(SPOILING))
  t.test(`a response that the application ${what} closes the connection`, async (t) => {
    const { port, handler, reported } = await embed(t, application);
    for (const request of [message(), message({ body: '{}' }), NO_TOKEN]) {
      const socket = connectTo(port);
      socket.write(request);
      // A client that got the last chunk would take the response for complete.
      t.notMatch(await text(socket), /\r\n0\r\n\r\n$/);
    }
    t.equal(reported.length > 0, isReported);
    await untilReleased({ handler });
  });

t.test('a setHeader that throws closes the connection of a request with Upgrade', async (t) => {
  const application = before((res) => (res.setHeader = throwing));
  const { port, log, reported } = await embed(t, application);
  for (const Authorization of [`Bearer ${TOKEN}`, undefined]) {
    const client = await connect(t, port);
    client.send(message({ headers: { Authorization, Upgrade: 'h2c' } }));
    await client.closed;
  }
  t.match(reported, exactly({ message: 'x' }, { message: 'x' }));
  t.equal(log.size, 0);
});

const callOnClose: Application = (handler, req, res) => {
  req.on('close', () => handler(req, res));
};

/** Requests that end early: applications that destroy them, and clients that abort them. */
const ENDS: Readonly<Record<string, readonly [application: Application, request: Buffer]>> = {
  'destroyed before the handler runs': [before((_, req) => req.destroy()), message()],
  'destroyed while the handler reads it': [meanwhile((_, req) => req.destroy()), message()],
  'destroyed while the handler waits for more': [
    // By the end of the next turn, the handler waits for the rest of the body.
    meanwhile((_, req) => setImmediate(() => setImmediate(() => req.destroy()))),
    message().subarray(0, -1),
  ],
  'aborted before the handler runs': [callOnClose, message()],
  'aborted within its body before the handler runs': [callOnClose, message().subarray(0, -1)],
  'aborted before the handler refuses it': [callOnClose, message({ method: 'PUT' })],
};

for (const [about, [application, request]] of Object.entries(ENDS))
  t.test(`a request is not stored, and its memory is released, if it is ${about}`, async (t) => {
    const { port, log, handler, reported } = await embed(t, application);
    const { socket, closed } = await connect(t, port);
    socket.write(request);
    if (application === callOnClose) socket.end();
    await closed;
    await untilReleased({ handler });
    t.equal(log.size, 0);
    t.strictSame(reported, []);
  });

t.test(
  'the handler answers objects that are no streams, such as those of node-mocks-http',
  async (t) => {
    await expectAnswers(t, async (handler, request) => {
      let body = '';
      const res = {
        writableEnded: false,
        getHeader: () => undefined,
        setHeader: () => undefined,
        writeHead: () => undefined,
        write: (text: string) => (body += text),
        end: () => (res.writableEnded = true),
      };
      const req: object = { ...request, socket: {} };
      await handler(req as HttpRequest, res as object as HttpResponse);
      return res.writableEnded ? body : 'the response is not ended';
    });
  },
);

t.test('the promise of the handler resolves even if the response is unusable', async (t) => {
  const shown = t.capture(console, 'error', () => undefined);
  const store = storeOf(async () => 'created');
  const handler = createPlantHandler({ store, tokens: [TOKEN] });
  const req: object = { ...INJECTED, socket: {} };
  const res: object = { getHeader: () => undefined };
  await handler(req as HttpRequest, res as HttpResponse);
  t.match(
    shown.args().map(String),
    exactly(/^plant-store: a request failed,/, /^plant-store: a response could not be sent,/),
    'reported to stderr by default',
  );
});
