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
} from '../client.js';
import { listen, serve, type Service } from '../service.js';
import { gatedStore, storeOf } from '../stores.js';

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

t.test('only a request for another path is passed to next, before any other check', async (t) => {
  const { port, reported } = await embed(t, (handler, req, res) => {
    void handler(req, res, (...args: unknown[]) => {
      t.strictSame(args, [], 'next gets no arguments');
      t.notOk(req.readableDidRead, 'the body is not read');
      t.notOk(res.headersSent, 'nothing is sent');
      void text(req).then((body) => res.end(`application: ${body}`));
    });
  });
  const faults = { Authorization: undefined, 'Content-Type': 'text/plain' };
  for (const headers of [{}, faults])
    for (const target of ['/', '/plants/', '//plants', 'http:///plant']) {
      const request = message({ target, headers, body: 'a body' });
      const answer = await exchange(t, port, request, anyAnswer);
      t.match(answer, { status: 200, text: 'application: a body' }, target);
    }
  const requests = {
    200: message(),
    400: message({ headers: { Host: 'a/b' } }),
    401: NO_TOKEN,
    405: message({ method: 'PUT' }),
  };
  for (const [status, request] of Object.entries(requests))
    t.equal((await exchange(t, port, request)).status, Number(status));
  t.strictSame(reported, []);
});

t.test('what a body parser has left is used only if the body has been read', async (t) => {
  const left = { body: { id: 8, name: 'other' } };
  const { port } = await embed(t, (handler, req, res) => {
    const isRead = req.headers['x-parser'] === 'reads' ? text(req) : Promise.resolve();
    void isRead.then(() => handler(Object.assign(req, left), res));
  });
  const request = message({ headers: { 'X-Parser': 'reads' } });
  t.equal((await exchange(t, port, request)).body, '{"name":"other"}');
  t.match((await exchange(t, port, message())).body, 'Boston fern');
});

/** Applications that read the body before they call the handler, but leave nothing. */
const READERS: Readonly<Record<string, Application>> = {
  'to its end': (handler, req, res) => void text(req).then(() => handler(req, res)),
  'in part': (handler, req, res) => {
    req.once('data', () => {
      req.pause();
      void handler(req, res);
    });
  },
};

for (const [about, application] of Object.entries(READERS))
  t.test(`a body that the application has read ${about} is answered with 500`, async (t) => {
    const reports: string[] = [];
    const report = (message: string) => void reports.push(message);
    const { port, log } = await embed(t, application, { report });
    const client = await connect(t, port);
    client.send(message({ headers: CHUNKED, body: chunk(FERN) }));
    if (about === 'to its end') client.send(chunk(''));
    const answer = await client.answer();
    isFailure(t, answer, { status: 500 }, about);
    t.notMatch(answer.body, /again/, 'no retry is asked for, which would fail in the same way');
    t.match(reports.join(), /^the application has read or decoded the body .* mount the handler/);
    t.equal(log.size, 0);
  });

t.test('an empty body is answered as empty, even if the application has read it', async (t) => {
  const { port } = await embed(t, (handler, req, res) => {
    req.resume().on('end', () => handler(req, res));
  });
  t.equal((await exchange(t, port, message({ body: '' }))).status, 400);
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

/** What a store may fail with, and the `error` of the answer, if there is one. */
const REASONS: Readonly<Record<string, readonly [error: number | undefined, reason: unknown]>> = {
  'a conflict': [409, new PlantStoreError('conflict', 'x')],
  'an unavailable store': [503, new PlantStoreError('unavailable', 'x')],
  'a damaged store': [503, new PlantStoreError('damaged', 'x')],
  'an Error that looks like ours': [500, Object.assign(new Error('x'), { code: 'conflict' })],
  'an Error with a status': [500, Object.assign(new Error('x'), { status: 200 })],
  'no Error': [500, { code: 'conflict' }],
  undefined: [500, undefined],
  'an object that throws whatever is done with it': [undefined, revoked.proxy],
};

t.test('whatever a store rejects with or throws ends the request', async (t) => {
  let fail = throwing as () => Promise<never>;
  const { port, handler, reported } = await serve(t, { store: storeOf(() => fail()) });
  for (const [about, [error, reason]] of Object.entries(REASONS)) {
    const throws = (): never => {
      const error: unknown = reason;
      throw error;
    };
    for (fail of [throws, async () => throws()]) {
      reported.length = 0;
      const client = await connect(t, port);
      client.send(message());
      if (error === undefined) await client.closed;
      else {
        const status = error < 500 ? 400 : error;
        isFailure(t, await client.answer(), { status, error }, about);
        t.strictSame(reported, error === 500 ? [reason] : [], `${about}: reported`);
      }
      t.equal(handler.bufferedBytes(), 0, `${about}: its memory is released`);
    }
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

const REQUESTS = [message(), message({ body: '{}' })];

/** Applications that end the response themselves. */
const ENDING: Readonly<Record<string, Application>> = {
  'before it calls the handler': (handler, req, res) => {
    res.end('theirs');
    void handler(req, res);
  },
  'while a plant is stored': (handler, req, res) => {
    void handler(req, res);
    res.end('theirs');
  },
};

for (const [when, application] of Object.entries(ENDING))
  t.test(`a response that the application ends ${when} is not changed`, async (t) => {
    const { port, reported } = await embed(t, application);
    const client = await connect(t, port, anyAnswer);
    for (const request of [...REQUESTS, ...REQUESTS]) {
      client.send(request);
      t.match(await client.answer(), { status: 200, body: 'theirs' });
    }
    t.strictSame(reported, []);
  });

/** Applications that begin the response, or destroy it. */
const BREAKING: Readonly<Record<string, Application>> = {
  begins: (handler, req, res) => {
    res.write('theirs');
    void handler(req, res);
  },
  destroys: (handler, req, res) => {
    void handler(req, res);
    res.destroy();
  },
};

for (const [how, application] of Object.entries(BREAKING))
  t.test(`a response that the application ${how} is destroyed, without a report`, async (t) => {
    const { port, reported } = await embed(t, application);
    for (const request of REQUESTS) {
      const socket = connectTo(port);
      socket.write(request);
      // A client that got the last chunk would take the response for complete.
      t.notMatch(await text(socket), /\r\n0\r\n\r\n$/);
    }
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
    const service = await embed(t, (handler, req, res) => {
      change(res);
      void handler(req, res);
    });
    for (const request of [message(), NO_TOKEN]) {
      const { socket, closed } = await connect(t, service.port);
      socket.write(request);
      await closed;
    }
    t.equal(service.handler.bufferedBytes(), 0, 'its memory is released');
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
    const { port, log, handler, reported } = await embed(t, application);
    const { socket, closed } = await connect(t, port);
    socket.write(request);
    if (application === callOnClose) socket.end();
    await closed;
    while (handler.bufferedBytes() > 0) await new Promise(setImmediate);
    t.equal(log.size, 0);
    t.strictSame(reported, []);
  });
