import { createServer } from 'node:http';
import type { Socket } from 'node:net';

import t from 'tap';

import { connect, exchange, message } from '../helpers/client.js';
import { inJson, PLANTS_OF_EACH_SHAPE } from '../helpers/plants.js';
import { listen, serve } from '../helpers/service.js';

t.test('the answer to a plant has its members, unchanged, and no id', async (t) => {
  const { port, log } = await serve(t);
  const odd = JSON.stringify('"\0\u001f\\ \ud83c \udf3f f\u00e4rn \u{1f33f}');
  const rows: readonly [sent: string, answered: string][] = [
    ['{"tag":"","more":[1],"name":"","id":3}', '{"name":"","tag":""}'],
    ['{"id":4,"name":"__proto__","__proto__":{"tag":"x"}}', '{"name":"__proto__"}'],
    [`{"id":5,"name":${odd},"tag":${odd}}`, `{"name":${odd},"tag":${odd}}`],
    ...PLANTS_OF_EACH_SHAPE.map(
      (plant) => [inJson(plant), inJson(plant).replace(/"id":\d+,/, '')] as [string, string],
    ),
  ];
  for (const [sent, answered] of [...rows, ...rows]) {
    const answer = await exchange(t, port, message({ body: sent }));
    t.match(answer, { status: 200, body: answered }, sent);
    t.equal(answer.headers['content-type'], 'application/json', sent);
    t.equal(answer.headers['content-length'], String(Buffer.byteLength(answered)), sent);
  }
  t.equal(log.size, rows.length, 'each is stored once');
});

t.test('the head and the body of an answer are sent in one piece', async (t) => {
  const { port, server } = await serve(t);
  const writes: string[] = [];
  server.on('connection', (socket: Socket) => {
    for (const method of ['_write', '_writev'] as const) {
      const write = (socket[method] as (...args: unknown[]) => void).bind(socket);
      socket[method] = (...args: unknown[]) => {
        writes.push(method);
        write(...args);
      };
    }
  });
  const requests = [message(), message({ body: '' }), message({ target: '/elsewhere' })];
  for (const request of requests) await exchange(t, port, request);
  // Several pieces would need `_writev`.
  t.strictSame(writes, Array(requests.length).fill('_write'));
});

t.test('a HEAD gets the headers of the same GET, and no body', async (t) => {
  const { port } = await serve(t);
  for (const target of ['/plants', '/elsewhere']) {
    const client = await connect(t, port);
    const headers = { 'Content-Length': undefined, 'Content-Type': undefined };
    const get = message({ method: 'GET', target, headers, body: '' });
    const head = message({ method: 'HEAD', target, headers, body: '' });
    client.send(get, head, get);
    const first = await client.answer();
    const second = await client.answer('HEAD');
    const third = await client.answer();
    t.equal(second.status, first.status);
    t.strictSame({ ...second.headers, date: '' }, { ...first.headers, date: '' });
    t.equal(third.body, first.body, 'the next answer follows at once');
  }
});

t.test('a HEAD is answered before its body has arrived', async (t) => {
  const { handler } = await serve(t);
  for (const rejectNonStandardBodyWrites of [false, true]) {
    const port = await listen(t, createServer({ rejectNonStandardBodyWrites }, handler));
    const client = await connect(t, port);
    client.send(message({ method: 'HEAD' }).subarray(0, -1));
    t.equal((await client.answer('HEAD')).status, 405);
  }
});
