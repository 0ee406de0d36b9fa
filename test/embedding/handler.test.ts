import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { connect as connectTo } from 'node:net';
import { text } from 'node:stream/consumers';

import t, { type Test } from 'tap';

import { PlantStoreError, type PlantHandler, type PlantHandlerOptions } from '../../dist/index.js';
import {
  anyAnswer,
  chunk,
  CHUNKED,
  connect,
  exchange,
  FERN,
  isFailure,
  message,
  TOKEN,
} from '../client.js';
import { nextClose, ONE_AT_A_TIME } from '../http/support.js';
import { listen, serve, type Service } from '../service.js';
import { gatedStore, storeOf } from '../stores.js';

const FERN_ANSWER = '{"name":"Boston fern","tag":"indoor"}';

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

const NO_TOKEN = message({ headers: { Authorization: undefined } });

t.test('an application may set and delete the credentials of a request', async (t) => {
  const { port } = await embed(t, (handler, req, res) => {
    if (req.headers.authorization) delete req.headers.authorization;
    else req.headers.authorization = `Bearer ${TOKEN}`;
    void handler(req, res);
  });
  t.equal((await exchange(t, port, NO_TOKEN)).status, 200);
  t.equal((await exchange(t, port, message())).status, 401);
});

t.test('a request for another path is passed to next before any other check', async (t) => {
  const { port, reported } = await embed(t, (handler, req, res) => {
    void handler(req, res, (...args: unknown[]) => {
      t.strictSame(args, [], 'next gets no arguments');
      t.notOk(req.readableDidRead, 'the body is not read');
      t.notOk(res.headersSent, 'nothing is sent');
      void text(req).then((body) => res.end(`application: ${body}`));
    });
  });
  const strangers = {
    'with a token': {},
    'without a token': { Authorization: undefined },
    'with two tokens': { Authorization: ['Bearer a', 'Bearer b'] },
    'of another type': { 'Content-Type': 'text/plain', 'Content-Encoding': 'gzip' },
  };
  for (const [about, headers] of Object.entries(strangers))
    for (const [method, target] of [
      ['POST', '/'],
      ['PUT', '/plants/'],
      ['POST', '//plants'],
      ['POST', 'http:///plant'],
    ] as const) {
      const request = message({ method, target, headers, body: 'a body' });
      const answer = await exchange(t, port, request, anyAnswer);
      t.match(answer, { status: 200, text: 'application: a body' }, `${target} ${about}`);
    }
  t.strictSame(reported, []);
});

t.test('a request for /plants is never passed to next', async (t) => {
  const { port } = await embed(t, (handler, req, res) => {
    void handler(req, res, () => t.fail('next was called'));
  });
  const requests = {
    200: message(),
    400: message({ headers: { Host: 'a/b' } }),
    401: NO_TOKEN,
    405: message({ method: 'PUT' }),
  };
  for (const [status, request] of Object.entries(requests))
    t.equal((await exchange(t, port, request)).status, Number(status));
});

t.test('a request without a target is not for the plants', async (t) => {
  const { port } = await embed(t, (handler, req, res) => {
    void handler(Object.assign(req, { url: undefined }), res);
  });
  t.equal((await exchange(t, port, message())).status, 404);
});

t.test(
  'what a body parser has left is used if the body has been read, and only then',
  async (t) => {
    const other = '{"id":8,"name":"other"}';
    const rows: readonly [left: object, answer: string][] = [
      [{ rawBody: Buffer.from(other), body: 'x' }, '{"name":"other"}'],
      [{ body: JSON.parse(other) as unknown }, '{"name":"other"}'],
      [{ body: {} }, '"error":422'],
      [{ body: undefined }, '"error":500'],
    ];
    for (const [left, answer] of rows) {
      const read = await embed(t, (handler, req, res) => {
        void text(req).then(() => handler(Object.assign(req, left), res));
      });
      t.match((await exchange(t, read.port, message())).body, answer);
      const unread = await embed(t, (handler, req, res) => {
        setImmediate(() => handler(Object.assign(req, left), res));
      });
      t.equal((await exchange(t, unread.port, message())).body, FERN_ANSWER);
    }
  },
);

t.test('a body that a parser has consumed is answered with a 500 of its own', async (t) => {
  const reports: string[] = [];
  const application: Application = (handler, req, res) => {
    void text(req).then(() => handler(req, res));
  };
  const report = (message: string) => void reports.push(message);
  const { port } = await embed(t, application, { report });
  const answer = await exchange(t, port, message());
  isFailure(t, answer, { status: 500 }, 'consumed');
  t.notMatch(answer.body, /again/, 'it does not ask for a retry, which would fail in the same way');
  t.strictSame(reports, [
    'the application has read or decoded the body and left neither rawBody nor body; mount the handler before what reads it',
  ]);
});

t.test('an empty body is answered as empty, even if the application has read it', async (t) => {
  const { port } = await embed(t, (handler, req, res) => {
    req.resume().on('end', () => handler(req, res));
  });
  t.equal((await exchange(t, port, message({ body: '' }))).status, 400);
});

t.test('a body that the application has read in part is answered with 500 at once', async (t) => {
  const { port, reported, log } = await embed(t, (handler, req, res) => {
    req.once('data', () => {
      req.pause();
      void handler(req, res);
    });
  });
  const client = await connect(t, port);
  client.send(message({ headers: CHUNKED, body: chunk(FERN) }));
  isFailure(t, await client.answer(), { status: 500 }, 'partly read');
  client.send(chunk(''));
  await client.closed;
  t.equal(reported.length, 1);
  t.equal(log.size, 0);
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
  const request = (about: string, body = FERN) => message({ headers: { 'X-About': about }, body });
  const stored = exchange(t, port, request('stored'));
  await store.arrived(1);
  await exchange(t, port, request('refused', '{}'));
  t.strictSame(settled, ['refused'], 'a plant that is pending has not settled it');
  store.letGo();
  await stored;
  // The client leaves in the middle of its body.
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

t.test('the handler throws, and its promise follows, only what next does', async (t) => {
  const { handler } = await serve(t);
  const rows: readonly [outcome: string, next: () => unknown][] = [
    ['resolves: undefined', () => 'ignored'],
    ['resolves: undefined', () => Promise.resolve('ignored')],
    ['rejects: x', async () => throwing()],
    ['throws: x', throwing],
  ];
  for (const [expected, next] of rows) {
    let outcome = '';
    const server = createServer((req, res) => {
      try {
        void handler(req, res, next)
          .then(
            (value: unknown) => (outcome = `resolves: ${String(value)}`),
            (error: unknown) => (outcome = `rejects: ${(error as Error).message}`),
          )
          .then(() => res.end('{}'));
      } catch (error) {
        outcome = `throws: ${(error as Error).message}`;
        res.end('{}');
      }
    });
    await exchange(t, await listen(t, server), message({ target: '/elsewhere' }), anyAnswer);
    t.equal(outcome, expected);
  }
});

const revoked = Proxy.revocable({}, {});
revoked.revoke();

/** What a store may fail with, and the `error` of the answer. */
const REASONS: Readonly<Record<string, readonly [error: number | undefined, reason: unknown]>> = {
  'a conflict': [409, new PlantStoreError('conflict', 'x')],
  'an unavailable store': [503, new PlantStoreError('unavailable', 'x')],
  'a damaged store': [503, new PlantStoreError('damaged', 'x')],
  'another Error': [500, new Error('fault')],
  'an Error that looks like ours': [500, Object.assign(new Error('x'), { code: 'conflict' })],
  'an Error with a status': [500, Object.assign(new Error('x'), { status: 200 })],
  'no Error': [500, { code: 'conflict' }],
  undefined: [500, undefined],
  null: [500, null],
  'a Symbol': [500, Symbol('x')],
  'an object that throws whatever is done with it': [undefined, revoked.proxy],
};

for (const [about, [error, reason]] of Object.entries(REASONS))
  t.test(`a store that rejects or throws ${about} ends the request`, async (t) => {
    const throws = (): never => {
      const error: unknown = reason;
      throw error;
    };
    for (const fail of [throws, async () => throws()]) {
      let isFailing = true;
      const store = storeOf((plant) => (isFailing ? fail() : service.log.add(plant)));
      const service: Service = await serve(t, { store, ...ONE_AT_A_TIME });
      const client = await connect(t, service.port);
      client.send(message());
      if (error === undefined) await client.closed;
      else {
        const status = error < 500 ? 400 : error;
        isFailure(t, await client.answer(), { status, error }, 'answered');
        t.strictSame(service.reported, error === 500 ? [reason] : [], 'reported');
      }
      isFailing = false;
      t.equal((await exchange(t, service.port, message())).status, 200, 'its memory is released');
    }
  });

t.test('internal errors are reported to stderr by default', async (t) => {
  const cause = new Error('fault');
  const store = storeOf(() => Promise.reject(cause));
  const { port } = await serve(t, { store, report: undefined as never });
  const written = t.capture(console, 'error');
  t.equal((await exchange(t, port, message())).status, 500);
  t.strictSame(written.args(), [['plant-store: a request failed', cause]]);
});

t.test('a response that the application has ended is not changed', async (t) => {
  const { port, reported } = await embed(t, (handler, req, res) => {
    res.end('theirs');
    void handler(req, res);
  });
  const requests = [message(), message({ body: '{}' }), NO_TOKEN];
  const client = await connect(t, port, anyAnswer);
  for (const request of [...requests, ...requests]) {
    client.send(request);
    t.match(await client.answer(), { status: 200, body: 'theirs' });
  }
  t.strictSame(reported, []);
});

t.test('a response that the application has begun is destroyed, without a report', async (t) => {
  const { port, reported } = await embed(t, (handler, req, res) => {
    res.write('theirs');
    void handler(req, res);
  });
  for (const request of [message(), message({ body: '{}' }), message({ method: 'PUT' })]) {
    const socket = connectTo(port);
    socket.write(request);
    // A client that got the last chunk would take the response for complete.
    t.notMatch(await text(socket), /\r\n0\r\n\r\n$/);
  }
  t.strictSame(reported, []);
});

t.test('a response that the application ends while a plant is stored is not changed', async (t) => {
  const store = gatedStore();
  const application: Application = (handler, req, res) => {
    void handler(req, res);
    void store.arrived(1).then(() => {
      if (req.headers['x-end'] === 'destroy') res.destroy();
      else res.writeHead(504).end('theirs');
      store.letGo();
    });
  };
  const { port, reported } = await embed(t, application, { store });
  t.equal((await exchange(t, port, message(), anyAnswer)).status, 504);
  const client = await connect(t, port);
  client.send(message({ headers: { 'X-End': 'destroy' } }));
  await client.closed;
  t.strictSame(reported, []);
});

/** Changes of a response with which it cannot be sent. */
const CHANGES: Readonly<Record<string, (res: ServerResponse) => unknown>> = {
  'a trailer without chunks': (res) => res.setHeader('Trailer', 'Server-Timing'),
  'a writeHead that throws': (res) => (res.writeHead = throwing),
  'an end that throws': (res) => (res.end = throwing),
};

for (const [about, change] of Object.entries(CHANGES))
  t.test(`a response with ${about} closes the connection`, async (t) => {
    let isChanged = true;
    const application: Application = (handler, req, res) => {
      if (isChanged) change(res);
      void handler(req, res);
    };
    const { port } = await embed(t, application, ONE_AT_A_TIME);
    for (const request of [message(), NO_TOKEN]) {
      const { socket, closed } = await connect(t, port);
      socket.write(request);
      await closed;
    }
    isChanged = false;
    t.equal((await exchange(t, port, message())).status, 200, 'its memory is released');
  });

const callOnClose: Application = (handler, req, res) => {
  req.on('close', () => handler(req, res));
};

/** Requests that end early: applications that destroy them, and clients that abort them. */
const ENDS: Readonly<Record<string, readonly [application: Application, request: Buffer]>> = {
  'destroyed before the handler runs': [
    (handler, req, res) => void handler(req.destroy(), res),
    message(),
  ],
  'destroyed while the handler reads it': [
    (handler, req, res) => {
      void handler(req, res);
      req.destroy();
    },
    message(),
  ],
  'destroyed while the handler waits for more': [
    (handler, req, res) => {
      void handler(req, res);
      // The handler waits for the rest of the body by the end of the next turn.
      setImmediate(() => setImmediate(() => req.destroy()));
    },
    message().subarray(0, -1),
  ],
  'aborted before the handler runs': [callOnClose, message()],
  'aborted within its body before the handler runs': [callOnClose, message().subarray(0, -1)],
  'aborted before the handler refuses it': [callOnClose, message({ method: 'PUT' })],
};

for (const [about, [application, request]] of Object.entries(ENDS))
  t.test(`a request is not stored, and its memory is released, if it is ${about}`, async (t) => {
    let ends = true;
    const service = await embed(
      t,
      (handler, req, res) => (ends ? application(handler, req, res) : void handler(req, res)),
      ONE_AT_A_TIME,
    );
    const { socket, closed } = await connect(t, service.port);
    socket.write(request);
    if (application === callOnClose) socket.end();
    await closed;
    ends = false;
    t.equal(service.log.size, 0);
    t.equal((await exchange(t, service.port, message())).status, 200);
    t.strictSame(service.reported, []);
  });

t.test('a client that disconnects while its plant is stored does not undo it', async (t) => {
  const gate = gatedStore();
  const store = storeOf((plant) => gate.add(plant).then(() => service.log.add(plant)));
  const service: Service = await serve(t, { store });
  const closed = nextClose(service.server);
  const client = await connect(t, service.port);
  client.send(message());
  await gate.arrived(1);
  client.socket.destroy();
  await closed;
  gate.letGo();
  t.equal((await exchange(t, service.port, message())).status, 200);
  t.equal(service.log.size, 1, 'a retry stores it only once');
  t.strictSame(service.reported, []);
});

t.test('handlers in one process share no state', async (t) => {
  const store = gatedStore();
  const full = await serve(t, { store, tokens: ['one'], ...ONE_AT_A_TIME });
  const created = storeOf(async () => 'created');
  const other = await serve(t, { store: created, tokens: ['two'], ...ONE_AT_A_TIME });
  const statusOf = async ({ port }: Service, token: string): Promise<number> => {
    const headers = { Authorization: `Bearer ${token}` };
    return (await exchange(t, port, message({ headers }))).status;
  };
  const waiting = statusOf(full, 'one');
  await store.arrived(1);
  t.equal(await statusOf(full, 'one'), 503);
  t.equal(await statusOf(full, 'two'), 401);
  t.equal(await statusOf(other, 'two'), 200);
  t.equal(await statusOf(other, 'one'), 401);
  other.handler.setTokens(['three']);
  t.equal(await statusOf(full, 'one'), 503);
  store.letGo();
  t.equal(await waiting, 200);
});
