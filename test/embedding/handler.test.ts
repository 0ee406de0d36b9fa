import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import * as http2 from 'node:http2';
import { connect as connectTo, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';

import t, { type Test } from 'tap';

import { DRAIN } from '../../dist/http/limits.js';
import {
  createPlantHandler,
  PlantStoreError,
  type PlantHandler,
  type PlantHandlerOptions,
} from '../../dist/index.js';
import {
  anyAnswer,
  chunk,
  CHUNKED,
  chunkedMessage,
  connect,
  exchange,
  FERN,
  isFailure,
  message,
  TOKEN,
} from '../client.js';
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
import { holdTimers, listen, serve, type Service } from '../service.js';
import { gatedStore, storeOf } from '../stores.js';

const FERN_ANSWER = '{"name":"Boston fern","tag":"indoor"}';

type Application = (handler: PlantHandler, req: IncomingMessage, res: ServerResponse) => void;

/** Serves the handler in an application that decides when and with which arguments to call it. */
async function embed(
  t: Test,
  application: Application,
  options?: Partial<PlantHandlerOptions>,
): Promise<Omit<Service, 'handler'>> {
  const { handler, log, reported } = await serve(t, options);
  const server = createServer((req, res) => application(handler, req, res));
  return { port: await listen(t, server), server, log, reported };
}

t.test('an application may set and delete the credentials of a request', async (t) => {
  const setting = await embed(t, (handler, req, res) => {
    req.headers.authorization = `Bearer ${TOKEN}`;
    void handler(req, res);
  });
  const none = message({ headers: { Authorization: undefined } });
  t.equal((await exchange(t, setting.port, none)).status, 200);
  const deleting = await embed(t, (handler, req, res) => {
    delete req.headers.authorization;
    void handler(req, res);
  });
  t.equal((await exchange(t, deleting.port, message())).status, 401);
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
    ] as const) {
      const request = message({ method, target, headers, body: 'a body' });
      const answer = await exchange(t, port, request, anyAnswer);
      t.match(answer, { status: 200 }, `${method} ${target} ${about}`);
      t.match(answer.text, 'application: a body');
    }
  t.strictSame(reported, []);
});

t.test('a request for /plants is never passed to next', async (t) => {
  const { port } = await embed(t, (handler, req, res) => {
    void handler(req, res, () => t.fail('next was called'));
  });
  const requests = {
    200: message(),
    401: message({ headers: { Authorization: undefined } }),
    405: message({ method: 'PUT' }),
    415: message({ headers: { 'Content-Type': undefined } }),
    422: message({ body: '{}' }),
  };
  for (const [code, request] of Object.entries(requests)) {
    const { status, body } = await exchange(t, port, request);
    if (status === 200) t.equal(status, Number(code));
    else t.match(JSON.parse(body), { error: Number(code) });
  }
});

t.test('a request without a target is passed to next', async (t) => {
  const { port } = await embed(t, (handler, req, res) => {
    void handler(Object.assign(req, { url: undefined }), res);
  });
  isFailure(t, await exchange(t, port, message()), { status: 404 }, 'no target');
});

t.test('the rawBody or body that a body parser has left is used', async (t) => {
  const parsed = (json: string): object => ({ body: JSON.parse(json) as unknown });
  const big = '{"id":9007199254740993,"name":"fern"}';
  const other = '{"id":8,"name":"other"}';
  const rows: Readonly<Record<string, [sent: string, left: object, expected: string | number]>> = {
    'rawBody, a Buffer': [big, { rawBody: Buffer.from(big) }, '{"name":"fern"}'],
    'rawBody, a string': [big, { rawBody: big }, '{"name":"fern"}'],
    'body, a Buffer': [big, { body: Buffer.from(big) }, '{"name":"fern"}'],
    'body, a string': [big, { body: big }, '{"name":"fern"}'],
    'body, parsed': [FERN, parsed(FERN), FERN_ANSWER],
    'rawBody before body': [FERN, { rawBody: FERN, ...parsed(other) }, FERN_ANSWER],
    'body, parsed, with an id that was rounded': [big, parsed(big), 422],
    'body, parsed, with faults': ['{}', { body: {} }, 422],
    'body, parsed, not an object': ['[]', { body: [] }, 422],
    'body, parsed, null': ['null', { body: null }, 422],
    'body, a string with a name twice': [big, { body: '{"id":1,"id":1}' }, 400],
    'body, a string that is not JSON': ['x', { body: 'x' }, 400],
    'body, an empty string': ['x', { body: '' }, 400],
    'rawBody, not UTF-8': ['x', { rawBody: Buffer.from([0x22, 0xff, 0x22]) }, 400],
    'rawBody, a Uint8Array': [
      big,
      { rawBody: new Uint8Array(Buffer.from(big)) },
      '{"name":"fern"}',
    ],
    'rawBody, part of a larger array': [
      big,
      { rawBody: new Uint8Array(Buffer.from(`..${big}`)).subarray(2) },
      '{"name":"fern"}',
    ],
    'rawBody, a DataView': [
      big,
      { rawBody: new DataView(new Uint8Array(Buffer.from(big)).buffer) },
      '{"name":"fern"}',
    ],
    'rawBody, an ArrayBuffer': [
      big,
      { rawBody: new Uint8Array(Buffer.from(big)).buffer },
      '{"name":"fern"}',
    ],
    'body, a Uint8Array': [big, { body: new Uint8Array(Buffer.from(big)) }, '{"name":"fern"}'],
    'body, a Uint8Array, not UTF-8': ['x', { body: Uint8Array.of(0x22, 0xff, 0x22) }, 400],
    'body, a string in which invalid UTF-8 may have been replaced': [
      '{"id":7,"name":"\ufffd"}',
      { body: '{"id":7,"name":"\ufffd"}' },
      400,
    ],
    'body, a string with a lone surrogate': ['x', { body: '{"id":7,"name":"\ud800"}' }, 400],
    'body, a string with U+FFFD escaped': [
      'x',
      { body: '{"id":7,"name":"\\ufffd"}' },
      '{"name":"\ufffd"}',
    ],
    'body, parsed, with a name in which invalid UTF-8 may have been replaced': [
      'x',
      { body: { id: 7, name: 'f\ufffdrn' } },
      400,
    ],
    'body, parsed, with such a tag': ['x', { body: { id: 7, name: 'fern', tag: '\ufffd' } }, 400],
    nothing: [FERN, {}, 500],
    undefined: [FERN, { rawBody: undefined, body: undefined }, 500],
  };
  for (const [about, [sent, left, expected]] of Object.entries(rows))
    await t.test(about, async (t) => {
      const { port, reported } = await embed(t, (handler, req, res) => {
        void text(req).then(() => handler(Object.assign(req, left), res));
      });
      const answer = await exchange(t, port, message({ body: sent }));
      if (typeof expected === 'string') t.match(answer, { status: 200, body: expected });
      else t.match(JSON.parse(answer.body), { error: expected });
      t.equal(reported.length, expected === 500 ? 1 : 0);
    });
});

t.test('a body that a parser has consumed is answered with a 500 of its own', async (t) => {
  const messages: string[] = [];
  const application: Application = (handler, req, res) => {
    void text(req).then(() => handler(req, res));
  };
  const report = (message: string) => void messages.push(message);
  const { port } = await embed(t, application, { report });
  const answer = await exchange(t, port, message());
  isFailure(t, answer, { status: 500 }, 'consumed');
  t.notMatch(answer.body, /again/, 'it does not ask for a retry, which would fail in the same way');
  t.strictSame(messages, [
    'a body parser has left neither rawBody nor body; mount the handler before it',
  ]);
});

t.test('a request is answered if the application listens for readable', async (t) => {
  const applications: Record<string, Application> = {
    before: (handler, req, res) => {
      req.on('readable', () => undefined);
      void handler(req, res);
    },
    after: (handler, req, res) => {
      void handler(req, res);
      req.on('readable', () => undefined);
    },
    'and reads': (handler, req, res) => {
      req.on('readable', () => void req.read(1));
      void handler(req, res);
    },
  };
  for (const [about, application] of Object.entries(applications)) {
    const { port } = await embed(t, application);
    const client = await connect(t, port);
    const halves = [message().subarray(0, -10), message().subarray(-10)];
    for (const [first, second] of [halves, [message(), '']]) {
      client.send(first ?? '');
      await new Promise(setImmediate);
      client.send(second ?? '');
      t.equal((await client.answer()).status, 200, about);
    }
    client.send(message({ headers: { Authorization: undefined }, body: 'x'.repeat(100_000) }));
    t.equal((await client.answer()).status, 401, about);
    client.send(message());
    t.equal((await client.answer()).status, 200, `${about}: the refused body has been drained`);
  }
});

t.test('the promise of the handler resolves once the response is ended', async (t) => {
  const store = gatedStore();
  const settled: string[] = [];
  const states: [string, boolean][] = [];
  const { handler } = await serve(t, { store });
  const server = createServer((req, res) => {
    const about = String(req.headers['x-about']);
    void handler(req, res).then((value: unknown) => {
      t.equal(value, undefined);
      settled.push(about);
      states.push([about, res.writableEnded || res.destroyed]);
    });
  });
  const port = await listen(t, server);
  const stored = exchange(t, port, message({ headers: { 'X-About': 'stored' } }));
  await store.arrived(1);
  const failing = { 'X-About': 'refused', Authorization: undefined };
  await exchange(t, port, message({ headers: failing }));
  t.strictSame(settled, ['refused'], 'a plant that is pending has not settled it');
  store.letGo();
  await stored;
  await exchange(t, port, message({ headers: { 'X-About': 'a fault' }, body: '{}' }));
  // The client leaves in the middle of its body.
  const client = await connect(t, port);
  client.send(message({ headers: { 'X-About': 'aborted' } }).subarray(0, -1));
  await exchange(t, port, message({ headers: { 'X-About': 'read' } }));
  client.socket.destroy();
  while (settled.length < 5) await new Promise(setImmediate);
  t.strictSame(
    states.sort(),
    ['a fault', 'aborted', 'read', 'refused', 'stored'].map((about) => [about, true]),
  );
});

t.test('the handler throws, and its promise follows, only what next does', async (t) => {
  const { handler } = await serve(t);
  const outcomes: unknown[] = [];
  const nexts: Record<string, () => unknown> = {
    'a value': () => 'ignored',
    'a promise': () => Promise.resolve('ignored'),
    'a rejection': () => Promise.reject(new Error('rejected')),
    'an exception': () => {
      throw new Error('thrown');
    },
  };
  const server = createServer((req, res) => {
    const next = nexts[decodeURI(req.url?.slice(1) ?? '')];
    void (async () => {
      try {
        const returned = handler(req, res, next);
        outcomes.push(
          await returned.then(
            undefined,
            (error: unknown) => `rejects: ${(error as Error).message}`,
          ),
        );
      } catch (error) {
        outcomes.push(`throws: ${(error as Error).message}`);
      }
      res.end('{}');
    })();
  });
  const port = await listen(t, server);
  for (const about of Object.keys(nexts))
    await exchange(t, port, message({ target: `/${encodeURI(about)}` }), anyAnswer);
  t.strictSame(outcomes, [undefined, undefined, 'rejects: rejected', 'throws: thrown']);
});

t.test('whatever the store rejects with, the request ends and releases its memory', async (t) => {
  const revoked = Proxy.revocable({}, {});
  revoked.revoke();
  for (const reason of [revoked.proxy, undefined, null, 'x', Symbol('x'), { code: 'conflict' }]) {
    let fails = true;
    const store = storeOf(async () => {
      const error: unknown = reason;
      if (fails) throw error;
      return 'created';
    });
    const limits = { maxBodyBytes: 100, maxBufferedBytes: 4096 };
    const { port } = await serve(t, { store, ...limits });
    const client = await connect(t, port);
    client.send(message());
    const answer = await client.answer().catch(() => undefined);
    if (answer) isFailure(t, answer, { status: 500 }, 'answered');
    else await client.closed;
    fails = false;
    t.equal((await exchange(t, port, message())).status, 200);
  }
});

t.test('the body limit applies to what a body parser has left, in bytes', async (t) => {
  const body = '{"id":7,"name":"f\u00e4rn"}';
  const size = Buffer.byteLength(body);
  const parsed = { name: 'f\u00e4rn', tag: 'x' };
  for (const [left, most] of [
    [{ rawBody: Buffer.from(body) }, size],
    [{ rawBody: body }, size],
    [{ body }, size],
    // Of a parsed object, the characters of its strings.
    [{ body: { id: 7, ...parsed } }, Object.values(parsed).join('').length],
  ] as const)
    for (const [maxBodyBytes, status] of [
      [most, 200],
      [most - 1, 400],
    ] as const) {
      const application: Application = (handler, req, res) => {
        void text(req).then(() => handler(Object.assign(req, left), res));
      };
      const { port } = await embed(t, application, { maxBodyBytes });
      // In chunks: a Content-Length would give it away.
      const answer = await exchange(t, port, chunkedMessage(body));
      t.equal(answer.status, status);
      if (status === 400) t.match(JSON.parse(answer.body), { error: 413 });
    }
});

t.test('the budget applies to what a body parser has left', async (t) => {
  const name = 'x'.repeat(6_500);
  const body = `{"id":7,"name":"${name}"}`;
  const request = message({ body });
  for (const left of [{ rawBody: Buffer.from(body) }, { body }, { body: { id: 7, name } }]) {
    const store = gatedStore();
    const application: Application = (handler, req, res) => {
      void text(req).then(() => handler(Object.assign(req, left), res));
    };
    // Each body counts four times, and there is room for three heads.
    const limits = { maxBodyBytes: 20_000, maxBufferedBytes: 66_000 };
    const { port } = await embed(t, application, { store, ...limits });
    const waiting = [exchange(t, port, request), exchange(t, port, request)];
    await store.arrived(2);
    isFailure(t, await exchange(t, port, request), { status: 503 }, 'a third does not fit');
    store.letGo();
    for (const { status } of await Promise.all(waiting)) t.equal(status, 200);
  }
});

t.test('an unread body is read, whatever properties the application has set', async (t) => {
  const left = [{ body: {} }, { body: undefined }, { body: 'x' }, { rawBody: Buffer.from('x') }];
  for (const some of left) {
    const { port } = await embed(t, (handler, req, res) => {
      setImmediate(() => handler(Object.assign(req, some), res));
    });
    t.equal((await exchange(t, port, message())).body, FERN_ANSWER);
  }
});

t.test('an empty body is answered as empty, even if the application has read it', async (t) => {
  const { port } = await embed(t, (handler, req, res) => {
    req.resume().on('end', () => handler(req, res));
  });
  isFailure(t, await exchange(t, port, message({ body: '' })), { status: 400 }, 'empty');
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

t.test('a response that the application has ended is not changed', async (t) => {
  const { port, reported } = await embed(t, (handler, req, res) => {
    res.end('theirs');
    void handler(req, res);
  });
  const requests = {
    'a plant': message(),
    'a fault': message({ body: '{}' }),
    'no token': message({ headers: { Authorization: undefined } }),
  };
  const client = await connect(t, port, anyAnswer);
  for (const [about, request] of [...Object.entries(requests), ...Object.entries(requests)]) {
    client.send(request);
    t.match(await client.answer(), { status: 200, body: 'theirs' }, about);
  }
  t.strictSame(reported, []);
});

t.test(
  'a response that the application has begun is destroyed, which is no internal error',
  async (t) => {
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
  },
);

t.test('a response that the application ends while a plant is stored is not changed', async (t) => {
  for (const end of [
    (res: ServerResponse) => res.writeHead(504).end('theirs'),
    (res: ServerResponse) => res.destroy(),
  ]) {
    const store = gatedStore();
    const application: Application = (handler, req, res) => {
      void handler(req, res);
      void store.arrived(1).then(() => {
        end(res);
        store.letGo();
      });
    };
    const { port, reported } = await embed(t, application, { store });
    const client = await connect(t, port, anyAnswer);
    client.send(message());
    const answer = await client.answer().catch(() => undefined);
    if (answer) t.match(answer, { status: 504 });
    else await client.closed;
    t.strictSame(reported, []);
  }
});

t.test('a response that throws when it is written closes the connection', async (t) => {
  const limits = { maxBodyBytes: 100, maxBufferedBytes: 4096 };
  const changes: Readonly<Record<string, (res: ServerResponse) => void>> = {
    'a trailer without chunks': (res) => res.setHeader('Trailer', 'Server-Timing'),
    'writeHead throws': (res) =>
      (res.writeHead = () => {
        throw new Error('writeHead');
      }),
    'end throws': (res) =>
      (res.end = () => {
        throw new Error('end');
      }),
  };
  for (const [about, change] of Object.entries(changes)) {
    let isChanged = true;
    const application: Application = (handler, req, res) => {
      if (isChanged) change(res);
      void handler(req, res);
    };
    const { port } = await embed(t, application, limits);
    for (const request of [message(), message({ headers: { Authorization: undefined } })]) {
      const { socket, closed } = await connect(t, port);
      socket.write(request);
      await closed;
    }
    isChanged = false;
    t.equal((await exchange(t, port, message())).status, 200, `${about}: its memory is released`);
  }
});

t.test('a request that is aborted before the handler runs stores nothing', async (t) => {
  let gone = true;
  const { port, log, reported } = await embed(t, (handler, req, res) => {
    if (gone) req.on('close', () => handler(req, res));
    else void handler(req, res);
  });
  for (const request of [message(), message().subarray(0, -1), message({ method: 'PUT' })]) {
    const { socket } = await connect(t, port);
    socket.write(request);
    socket.end();
    await once(socket, 'close');
  }
  gone = false;
  t.equal((await exchange(t, port, message({ body: '{"id":8,"name":"x"}' }))).status, 200);
  t.equal(log.size, 1);
  t.strictSame(reported, []);
});

t.test(
  'a request that the application destroys is not answered and releases its memory',
  async (t) => {
    let destroyed = 0;
    const limits = { maxBodyBytes: 100, maxBufferedBytes: 4096 };
    const application: Application = (handler, req, res) => {
      if (destroyed === 0) req.destroy();
      void handler(req, res);
      if (destroyed === 1) req.destroy();
      if (destroyed === 2) setTimeout(() => req.destroy(), 20);
      destroyed++;
    };
    const { port, log, reported } = await embed(t, application, limits);
    const requests = {
      'before the handler runs': message(),
      'while the handler reads it': message(),
      'while the handler waits for more': message().subarray(0, -1),
    };
    for (const [when, request] of Object.entries(requests)) {
      const client = await connect(t, port);
      client.send(request);
      await client.closed;
      t.equal(log.size, 0, when);
    }
    t.equal((await exchange(t, port, message())).status, 200, 'the memory is released');
    t.strictSame(reported, []);
  },
);

t.test('a client that disconnects while its plant is stored does not undo it', async (t) => {
  const gate = gatedStore();
  const store = storeOf((plant) => gate.add(plant).then(() => service.log.add(plant)));
  const service: Service = await serve(t, { store });
  const client = await connect(t, service.port);
  const requested = once(service.server, 'request') as Promise<[unknown, ServerResponse]>;
  client.send(message());
  await gate.arrived(1);
  const [, response] = await requested;
  client.socket.destroy();
  await once(response, 'close');
  gate.letGo();
  t.equal((await exchange(t, service.port, message())).status, 200);
  t.equal(service.log.size, 1, 'a retry stores it only once');
  t.strictSame(service.reported, []);
});

t.test('the code of a PlantStoreError determines the answer', async (t) => {
  const rows: Readonly<Record<string, [error: number, failure: unknown]>> = {
    conflict: [409, new PlantStoreError('conflict', 'x')],
    unavailable: [503, new PlantStoreError('unavailable', 'x')],
    damaged: [503, new PlantStoreError('damaged', 'x')],
    locked: [503, new PlantStoreError('locked', 'x')],
    'another Error': [500, new Error('fault')],
    'an Error that looks like ours': [500, Object.assign(new Error('x'), { code: 'conflict' })],
    'an Error with a status': [500, Object.assign(new Error('x'), { status: 200 })],
    'not an Error': [500, 'fault'],
  };
  for (const [about, [error, failure]] of Object.entries(rows)) {
    const stores = {
      rejects: storeOf(async () => {
        throw failure as Error;
      }),
      throws: storeOf(() => {
        throw failure as Error;
      }),
    };
    for (const [how, store] of Object.entries(stores)) {
      const { port, reported } = await serve(t, { store });
      const answer = await exchange(t, port, message());
      isFailure(t, answer, { status: error < 500 ? 400 : error, error }, `${how}: ${about}`);
      t.strictSame(reported, error === 500 ? [failure] : [], `${how}: ${about}: reported`);
    }
  }
});

t.test('internal errors are reported to stderr by default', async (t) => {
  const cause = new Error('fault');
  const store = storeOf(() => Promise.reject(cause));
  const handler = createPlantHandler({ store, tokens: [TOKEN] });
  const port = await listen(t, createServer(handler));
  const written = t.capture(console, 'error');
  t.equal((await exchange(t, port, message())).status, 500);
  t.strictSame(written.args(), [['plant-store: a request failed', cause]]);
});

t.test('handlers in one process share no state', async (t) => {
  const limits = { maxBodyBytes: 100, maxBufferedBytes: 4096 };
  const store = gatedStore();
  const full = await serve(t, { store, tokens: ['one'], ...limits });
  await t.test('a request with the token of the other handler', async (t) => {
    const other = await serve(t, { tokens: ['two'], ...limits });
    const one = { Authorization: 'Bearer one' };
    const two = { Authorization: 'Bearer two' };
    const waiting = exchange(t, full.port, message({ headers: one }));
    await store.arrived(1);
    t.equal((await exchange(t, full.port, message({ headers: one }))).status, 503);
    t.equal((await exchange(t, full.port, message({ headers: two }))).status, 401);
    t.equal((await exchange(t, other.port, message({ headers: two }))).status, 200);
    t.equal((await exchange(t, other.port, message({ headers: one }))).status, 401);
    other.handler.setTokens(['three']);
    t.equal((await exchange(t, full.port, message({ headers: one }))).status, 503);
    store.letGo();
    t.equal((await waiting).status, 200);
  });
});

t.test('HTTP/2 in cleartext gets the same answers', async (t) => {
  const { handler, log } = await serve(t, { maxBodyBytes: 100 });
  const server = http2.createServer(handler);
  const session = http2Session(t, await listen(t, server));

  const rows: readonly [error: number, headers: http2.OutgoingHttpHeaders, body: string][] = [
    [401, { authorization: '' }, FERN],
    [401, { authorization: 'Bearer other' }, FERN],
    [404, { ':path': '/elsewhere' }, FERN],
    [405, { ':method': 'PUT' }, FERN],
    [415, { 'content-type': 'text/plain' }, FERN],
    [415, { 'content-encoding': 'gzip' }, FERN],
    [413, { 'content-length': 101 }, ' '.repeat(101)],
    [413, {}, ' '.repeat(101)],
    [400, {}, ''],
    [422, {}, '{}'],
  ];
  for (const [error, headers, body] of rows) {
    const { status, body: answer } = await http2Answer(http2Post(session, headers).end(body));
    t.match(JSON.parse(answer), { error });
    t.equal(status, [401, 404, 405].includes(error) ? error : 400);
    t.strictSame(await http2Answer(http2Post(session).end(FERN)), {
      status: 200,
      body: FERN_ANSWER,
    });
  }
  const head = http2Post(session, { ':method': 'HEAD' }).end();
  t.strictSame(await http2Answer(head, 'HEAD'), { status: 405, body: '' });
  t.equal(log.size, 1);
});

t.test('HTTP/2: a body that is too large or too slow is answered, then reset', async (t) => {
  const endDrain = holdTimers(t, DRAIN.timeoutMs);
  const { handler } = await serve(t, { maxBodyBytes: 100, bodyTimeoutMs: 100 });
  const server = http2.createServer(handler);
  const session = http2Session(t, await listen(t, server));
  const warnings: Error[] = [];
  const onWarning = (warning: Error): unknown => warnings.push(warning);
  process.on('warning', onWarning);
  t.teardown(() => process.off('warning', onWarning));
  const slow = http2Post(session);
  slow.write('{');
  t.match(await http2Answer(slow), { status: 408, body: /"error":408/ });
  endDrain();
  if (!slow.closed) await once(slow, 'close');
  const large = http2Post(session);
  large.write(' '.repeat(101));
  t.match(await http2Answer(large), { status: 400, body: /"error":413/ });
  endDrain();
  if (!large.closed) await once(large, 'close');
  t.strictSame(warnings, [], 'no connection-specific header');
});

t.test('HTTP/2: a stream that is reset stores nothing and releases its memory', async (t) => {
  const limits = { maxBodyBytes: 10_000, maxBufferedBytes: 10_000 };
  const { handler, log } = await serve(t, limits);
  const server = http2.createServer(handler);
  const session = http2Session(t, await listen(t, server));
  for (const code of [http2.constants.NGHTTP2_NO_ERROR, http2.constants.NGHTTP2_CANCEL]) {
    const request = http2Post(session);
    request.on('error', () => undefined);
    request.write(FERN.slice(0, -1));
    const [, response] = (await once(server, 'request')) as [unknown, http2.Http2ServerResponse];
    request.close(code);
    await once(response, 'close');
    t.equal(log.size, 0);
  }
  t.match(await http2Answer(http2Post(session).end(FERN)), { status: 200 });
  t.equal(log.size, 1);
});

t.test('HTTP/2: an incomplete body is not stored', async (t) => {
  const { handler, log } = await serve(t);
  const head = http2Fields(
    ['authorization', `Bearer ${TOKEN}`],
    ['content-type', 'application/json'],
  );
  const { NGHTTP2_NO_ERROR, NGHTTP2_CANCEL } = http2.constants;
  for (const code of [NGHTTP2_NO_ERROR, NGHTTP2_CANCEL])
    for (const inOnePacket of [true, false]) {
      const server = http2.createServer(handler);
      const { socket } = await connect(t, await listen(t, server));
      socket.write(HTTP2_BEGINNING);
      await once(socket, 'data');
      const requested = once(server, 'request');
      const plant = [
        http2Frame(FRAMES.HEADERS, FLAGS.END_HEADERS, head),
        http2Frame(FRAMES.DATA, 0, Buffer.from(FERN)),
      ];
      const reset = http2Frame(FRAMES.RST_STREAM, 0, Buffer.from([0, 0, 0, code]));
      socket.write(Buffer.concat(inOnePacket ? [...plant, reset] : plant));
      const [request] = (await requested) as [http2.Http2ServerRequest];
      if (!inOnePacket) await sleep(20);
      const closed = once(request, 'close');
      if (!inOnePacket) socket.write(reset);
      await closed;
      await sleep(20);
      t.equal(log.size, 0, `code ${code}, ${inOnePacket ? 'at once' : 'later'}`);
    }
});

t.test('HTTP/2: a client may disconnect while its plant is stored', async (t) => {
  for (const leave of ['the stream', 'the session'] as const)
    for (const outcome of ['created', 'unavailable'] as const) {
      const gate = gatedStore();
      const store = storeOf(async (plant) => {
        await gate.add(plant);
        if (outcome === 'unavailable') throw new PlantStoreError('unavailable', 'x');
        return outcome;
      });
      const { handler, reported } = await serve(t, {
        store,
        maxBodyBytes: 100,
        maxBufferedBytes: 4096,
      });
      const server = http2.createServer(handler);
      const port = await listen(t, server);
      const session = http2Session(t, port);
      const request = http2Post(session).end(FERN);
      request.on('error', () => undefined);
      const [, response] = (await once(server, 'request')) as [unknown, http2.Http2ServerResponse];
      await gate.arrived(1);
      if (leave === 'the stream') request.close(http2.constants.NGHTTP2_CANCEL);
      else session.destroy();
      await once(response, 'close');
      gate.letGo();
      const { status } = await http2Answer(http2Post(http2Session(t, port)).end(FERN));
      t.equal(status, outcome === 'created' ? 200 : 503, `${leave}, ${outcome}`);
      t.strictSame(reported, []);
    }
});

t.test('HTTP/2: an answer that is never read is released with its stream', async (t) => {
  const { handler } = await serve(t, { maxBodyBytes: 100, maxBufferedBytes: 4096 });
  const server = http2.createServer(handler);
  const port = await listen(t, server);
  for (const leave of ['the stream', 'the session'] as const) {
    const reader = http2Session(t, port, { initialWindowSize: 0 });
    const session = http2Session(t, port);
    const served = once(server, 'request') as Promise<[unknown, http2.Http2ServerResponse]>;
    const request = http2Post(reader).end(FERN);
    request.on('error', () => undefined);
    const [[, response]] = await Promise.all([served, once(request, 'response')]);
    const refused = await http2Answer(http2Post(session).end(FERN));
    t.match(refused, { status: 503 }, `${leave}: the answer is held`);
    const closed = once(response, 'close');
    if (leave === 'the stream') request.close(http2.constants.NGHTTP2_CANCEL);
    else reader.destroy();
    await closed;
    const stored = await http2Answer(http2Post(session).end(FERN));
    t.match(stored, { status: 200 }, `${leave}: it is released`);
  }
});

t.test('responses leave no listeners on a connection that is kept', async (t) => {
  const { handler } = await serve(t);
  const server = createServer(handler);
  const connected = once(server, 'connection') as Promise<[Socket]>;
  const client = await connect(t, await listen(t, server));
  const [socket] = await connected;
  const listeners = () => socket.eventNames().map((name) => [name, socket.listenerCount(name)]);
  client.send(message());
  await client.answer();
  const before = listeners();
  for (let i = 0; i < 3; i++) {
    // The second response is ready first, and waits for the first one.
    client.send(Buffer.concat([message(), message({ method: 'PUT' })]));
    t.match(await client.answer(), { status: 200 });
    t.match(await client.answer(), { status: 405 });
  }
  client.send(message());
  await client.answer();
  t.strictSame(listeners(), before);
});

t.test('HTTP/2: responses leave no listeners on their connection', async (t) => {
  const { handler } = await serve(t);
  const server = http2.createServer(handler);
  const connected = once(server, 'connection') as Promise<[Socket]>;
  // So that each response is flushed in pieces.
  const session = http2Session(t, await listen(t, server), { initialWindowSize: 10 });
  const [socket] = await connected;
  const before = socket.listenerCount('close');
  for (let i = 0; i < 20; i++)
    t.match(await http2Answer(http2Post(session).end(FERN)), { status: 200 });
  t.equal(socket.listenerCount('close'), before);
});

t.test('HTTP/2: a request that the application destroys is closed', async (t) => {
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
    const request = http2Post(session).end(FERN);
    request.on('error', () => undefined);
    await once(request, 'close');
    t.equal(log.size, 0, when);
  }
});
