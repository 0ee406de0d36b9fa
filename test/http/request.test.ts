import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';

import t, { type Test } from 'tap';

import { declaredLength, isRepeated } from '../../dist/http/request.js';
import { connect, message, type Message } from '../client.js';
import { listen } from '../service.js';

/** A request as node:http parses it. */
async function received(t: Test, parts: Message): Promise<IncomingMessage> {
  const server = createServer();
  const client = await connect(t, await listen(t, server));
  client.send(message(parts));
  const [req] = (await once(server, 'request')) as [IncomingMessage];
  return req;
}

t.test('lines of a header field that node:http drops are noticed', async (t) => {
  const headers = {
    Host: 'one',
    HOST: 'two',
    Authorization: ['Bearer a', 'Bearer b'],
    'X-Host': 'three',
    // A value is not a name.
    'X-Name': 'Content-Type',
  };
  const req = await received(t, { headers });
  for (const name of ['host', 'authorization']) t.ok(isRepeated(req, name), name);
  for (const name of ['content-type', 'cookie']) t.notOk(isRepeated(req, name), name);
});

t.test('the length of a body is the one that the request declares', async (t) => {
  t.equal(declaredLength(await received(t, { body: '' })), 0);
  t.equal(declaredLength(await received(t, { body: 'four' })), 4);
  const chunked = { 'Content-Length': undefined, 'Transfer-Encoding': 'chunked' };
  t.ok(Number.isNaN(declaredLength(await received(t, { headers: chunked, body: '' }))));
});
