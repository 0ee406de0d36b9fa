import { createServer } from 'node:http';

import t from 'tap';

import { chunk, CHUNKED, exchange, expectFailure, TOKEN, type Message } from '../helpers/client.js';
import { listen, serve } from '../helpers/service.js';
import { expectDecisions, inHeader, inVersion } from './support.js';

t.test('a Host that is not a valid host is refused', async (t) => {
  await expectDecisions(t, {
    Host: {
      request: inHeader('Host'),
      stored: ['', 'plants.example:8080', '[v1.fe80::a+b]:1', "a_b~c%C3%A5!$&'()*,;="],
      refused: Array.from(' /@?#\\"<>^`{|}\u00e9', (character) => `a${character}b`),
      status: 400,
    },
  });
});

t.test(
  'Host may be missing only in HTTP/1.0; neither Host nor Authorization may come twice',
  async (t) => {
    const { handler } = await serve(t);
    const port = await listen(t, createServer({ requireHostHeader: false }, handler));
    const credentials = `Bearer ${TOKEN}`;
    const rows: readonly [error: number, version: string, headers: Message['headers'] & object][] =
      [
        [400, '1.1', { Host: undefined }],
        [400, '1.1', { Host: ['localhost', 'localhost'] }],
        [400, '1.1', { Host: undefined, host: 'localhost', HOST: 'other' }],
        [200, '1.1', { 'X-Name': 'Host' }],
        [200, '1.0', { Host: undefined }],
        [400, '1.0', { Host: ['localhost', 'other'] }],
        [400, '1.1', { Authorization: [credentials, credentials] }],
        [400, '1.1', { Authorization: credentials, authorization: 'Basic eDp4' }],
      ];
    for (const [expected, version, headers] of rows) {
      const { status, body } = await exchange(t, port, inVersion(version, { headers }));
      const { error = status } = JSON.parse(body) as { error?: number };
      t.equal(error, expected, `${version}: ${JSON.stringify(headers)}`);
    }
  },
);

t.test('an expectation in HTTP/1.0 is ignored', async (t) => {
  const { port } = await serve(t);
  const request = inVersion('1.0', { headers: { Expect: '200-ok' } });
  t.equal((await exchange(t, port, request)).status, 200);
});

t.test('a faulty version or framing is refused without waiting for the body', async (t) => {
  const { port, handler } = await serve(t);
  const malformed = { status: 400, headers: { connection: 'close' } };
  for (const [version, coding] of [
    ['0.9', 'chunked'],
    ['2.0', 'chunked'],
    ['1.0', 'chunked'],
    ['1.0', 'gzip, chunked'],
  ] as const) {
    const headers = { ...CHUNKED, Connection: 'keep-alive', 'Transfer-Encoding': coding };
    const request = inVersion(version, { headers, body: '1000\r\nx' });
    expectFailure(t, await exchange(t, port, request), malformed, `${version}, ${coding}`);
  }
  const afterParser = createServer((req, res) => {
    req.resume().on('end', () => handler(Object.assign(req, { body: {} }), res));
  });
  const headers = { ...CHUNKED, Connection: 'keep-alive' };
  const parsed = inVersion('1.0', { headers, body: chunk('') });
  const answer = await exchange(t, await listen(t, afterParser), parsed);
  expectFailure(t, answer, malformed, 'after a body parser has read the body');
});
