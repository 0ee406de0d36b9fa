import crypto from 'node:crypto';
import { createServer } from 'node:http2';
import { syncBuiltinESMExports } from 'node:module';

import fc from 'fast-check';
import t, { type Test } from 'tap';

import { failures } from '../../dist/http/failures.js';
import { createAuthenticator, MAX_TOKEN_LENGTH } from '../../dist/http/auth.js';
import { createPlantHandler } from '../../dist/index.js';
import { connect, exchange, isFailure, message, TOKEN } from '../client.js';
import { FLAGS, FRAMES, HTTP2_BEGINNING, http2Fields, http2Frame } from '../http2.js';
import { listen, serve } from '../service.js';
import { openLog } from '../stores.js';

/** The part of a request that an authenticator uses. */
function requestWith(name: string, value: string) {
  return {
    rawHeaders: ['Host', 'localhost', name, value],
    headers: { [name.toLowerCase()]: value },
  };
}

/** What an authenticator for these tokens returns for an Authorization header. */
function judge(tokens: readonly string[], credentials: string) {
  return createAuthenticator(tokens)(requestWith('Authorization', credentials));
}

/** RFC 6750, section 2.1. */
const tokens = fc
  .tuple(
    fc.stringMatching(/^[A-Za-z0-9._~+/-]{1,40}$/),
    fc.integer({ min: 0, max: 3 }).map((count) => '='.repeat(count)),
  )
  .map((parts) => parts.join(''));

t.test('the token is accepted, however the scheme is written', async (t) => {
  for (const scheme of ['Bearer', 'bearer', 'BEARER', 'bEaReR', 'Bearer  ', 'Bearer      '])
    t.equal(judge([TOKEN], `${scheme} ${TOKEN}`), undefined, scheme);
});

t.test('the name of the header may have any case', async (t) => {
  const authenticate = createAuthenticator([TOKEN]);
  for (const name of ['Authorization', 'authorization', 'AUTHORIZATION', 'aUTHORIZATION'])
    t.equal(authenticate(requestWith(name, `Bearer ${TOKEN}`)), undefined, name);
});

t.test('a header with another name is ignored', async (t) => {
  const authenticate = createAuthenticator([TOKEN]);
  for (const name of ['Proxy-Authorization', 'X-Authorization', 'Authorizations', 'Authorizatiom'])
    t.equal(authenticate(requestWith(name, `Bearer ${TOKEN}`)), failures.noToken, name);
});

t.test('every bearer token of RFC 6750 can be configured, sent and accepted', async (t) => {
  fc.assert(fc.property(tokens, (token) => judge([token], `Bearer ${token}`) === undefined));
  t.pass();
});

t.test('each of several tokens is accepted', async (t) => {
  const several = ['one', 'two', 'three-is-longer', '4'.repeat(MAX_TOKEN_LENGTH), 'two'];
  for (const token of several) t.equal(judge(several, `Bearer ${token}`), undefined, token);
  t.equal(judge(several, 'Bearer five'), failures.wrongToken);
  t.equal(judge(several, 'Bearer onetwo'), failures.wrongToken);
});

t.test('no other token is accepted', async (t) => {
  fc.assert(
    fc.property(fc.array(tokens, { minLength: 1, maxLength: 5 }), tokens, (accepted, token) => {
      const failure = judge(accepted, `Bearer ${token}`);
      return failure === (accepted.includes(token) ? undefined : failures.wrongToken);
    }),
  );
  const longest = 'x'.repeat(MAX_TOKEN_LENGTH);
  for (const accepted of [TOKEN, longest]) {
    const others = [
      accepted.slice(0, -1),
      accepted.slice(1),
      accepted.slice(0, 1),
      `${accepted}x`,
      `x${accepted}`,
      `${accepted}=`,
      `${accepted}${accepted}`,
      accepted.toUpperCase(),
      accepted.padEnd(511, 'y'),
      accepted.padEnd(512, 'x'),
      accepted.padEnd(513, 'x'),
      accepted.padEnd(8_000, 'x'),
      'y'.repeat(8_000),
    ].filter((other) => other !== accepted);
    for (const other of others) t.equal(judge([accepted], `Bearer ${other}`), failures.wrongToken);
  }
});

t.test('every accepted token is compared in constant time, whichever one matches', async (t) => {
  const calls = t.capture(crypto, 'timingSafeEqual', crypto.timingSafeEqual);
  syncBuiltinESMExports();
  t.teardown(syncBuiltinESMExports);
  const several = ['first', 'a-longer-one', 'last'];
  const authenticate = createAuthenticator(several);
  for (const token of [...several, 'x', 'none-of-them']) {
    authenticate(requestWith('Authorization', `Bearer ${token}`));
    t.strictSame(
      calls().map(({ args }) => args.map(String)),
      several.map((each) => [`${token}\0`, each.padEnd(64, '\0').slice(0, token.length + 1)]),
      `${token}: over its own length`,
    );
  }
});

t.test('a refused token does not affect the check of the next one', async (t) => {
  const authenticate = createAuthenticator(['long-token']);
  for (const before of ['long-token-x', 'x'.repeat(512)]) {
    for (const token of [before, 'long'])
      t.equal(authenticate(requestWith('Authorization', `Bearer ${token}`)), failures.wrongToken);
    t.equal(authenticate(requestWith('Authorization', 'Bearer long-token')), undefined);
  }
});

t.test('an Authorization header without a bearer token counts as no credentials', async (t) => {
  const others = [
    '',
    ' ',
    'Bearer',
    'Bearer ',
    `Bearer${TOKEN}`,
    `Bearer\t${TOKEN}`,
    `Bearer ${TOKEN} `,
    `Bearer ${TOKEN} ${TOKEN}`,
    `Bearer ${TOKEN},Bearer ${TOKEN}`,
    `Bearer "${TOKEN}"`,
    `Bearer token=${TOKEN}`,
    'Bearer =',
    'Bearer a=b',
    'Bearer pl\u00e4nt',
    'Bearer a\0',
    `Basic ${Buffer.from(`user:${TOKEN}`).toString('base64')}`,
    `Digest ${TOKEN}`,
    `XBearer ${TOKEN}`,
    TOKEN,
  ];
  for (const credentials of others)
    t.equal(judge([TOKEN], credentials), failures.noToken, JSON.stringify(credentials));
  t.equal(createAuthenticator([TOKEN])({ rawHeaders: [], headers: {} }), failures.noToken);
});

t.test('more than one Authorization header is refused, even if one is valid', async (t) => {
  const { port, log } = await serve(t);
  const good = `Bearer ${TOKEN}`;
  for (const values of [
    [good, good],
    [good, 'Basic eDp4'],
    ['Basic eDp4', good],
    ['', good],
    [good, good, good],
  ])
    isFailure(
      t,
      await exchange(t, port, message({ headers: { Authorization: values } })),
      { status: 400 },
      values.join(),
    );
  t.equal(log.size, 0, 'nothing is stored');
});

t.test('more than one authorization field is refused in HTTP/2, too', async (t) => {
  const handler = createPlantHandler({ store: await openLog(t), tokens: [TOKEN] });
  const port = await listen(t, createServer(handler));
  const good = `Bearer ${TOKEN}`;
  t.match(await http2Body(t, port, [good, good]), '"error":400,');
  t.match(await http2Body(t, port, [good]), '"error":415,', 'one of them is accepted');
});

/** The body that answers a POST of nothing with these authorization fields. */
async function http2Body(t: Test, port: number, authorizations: readonly string[]) {
  const fields = http2Fields(...authorizations.map((value) => ['authorization', value] as const));
  const { socket } = await connect(t, port);
  const { END_STREAM, END_HEADERS } = FLAGS;
  socket.write(HTTP2_BEGINNING);
  socket.write(http2Frame(FRAMES.HEADERS, END_STREAM | END_HEADERS, fields));
  let received = Buffer.alloc(0);
  for await (const data of socket) {
    received = Buffer.concat([received, data as Buffer]);
    for (let at = 0; at + 9 <= received.length;) {
      const end = at + 9 + received.readUIntBE(at, 3);
      if (received[at + 3] === FRAMES.DATA && end <= received.length)
        return received.toString('utf8', at + 9, end);
      at = end;
    }
  }
  throw new Error('no body came');
}

t.test('tokens that no request could carry make createPlantHandler throw', async (t) => {
  const store = await openLog(t);
  const rows: readonly [about: string, tokens: readonly string[], message: string][] = [
    ['none', [], 'tokens: must be an array of at least one string'],
    ['nothing', undefined as never, 'tokens: must be an array of at least one string'],
    [
      'one outside of an array',
      'marker' as never,
      'tokens: must be an array of at least one string',
    ],
    ['an empty one', [''], 'tokens: number 1 has characters'],
    ['a variable that is not set', [undefined as never], 'tokens: number 1 is not a string'],
    ['a number', [TOKEN, 7 as never], 'tokens: number 2 is not a string'],
    ['white space', ['marker marker'], 'tokens: number 1 has characters'],
    ['a line break', ['marker\n'], 'tokens: number 1 has characters'],
    ['a NUL', ['marker\0'], 'tokens: number 1 has characters'],
    ['a letter beyond ASCII', ['märker'], 'tokens: number 1 has characters'],
    ['nothing but padding', ['=='], 'tokens: number 1 has characters'],
    ['padding inside', ['marker=marker'], 'tokens: number 1 has characters'],
    ['512 characters', ['marker'.padEnd(512, 'x')], 'tokens: number 1 is longer than 511'],
    ['a bad one among good ones', [TOKEN, 'marker!', TOKEN], 'tokens: number 2 has characters'],
  ];
  for (const [about, tokens, message] of rows) {
    const error = t.throws(() => createPlantHandler({ store, tokens }), TypeError, about) as Error;
    t.ok(error.message.startsWith(message), `${about}: ${error.message}`);
    t.notMatch(error.message, /m.rker/, `${about}: no token in the message`);
  }
  t.doesNotThrow(() => createPlantHandler({ store, tokens: ['x'.repeat(511)] }));
});

t.test('a store that was not awaited makes createPlantHandler throw', async (t) => {
  const opening = openLog(t);
  const options = { store: opening as never, tokens: [TOKEN] };
  t.throws(() => createPlantHandler(options), new TypeError('store: is a promise; await it'));
  await opening;
});

t.test('setTokens replaces the accepted tokens at once', async (t) => {
  const { port, handler } = await serve(t, { tokens: ['old', 'both'] });
  const statusWith = async (token: string): Promise<number> => {
    const headers = { Authorization: `Bearer ${token}` };
    return (await exchange(t, port, message({ headers }))).status;
  };
  t.equal(await statusWith('old'), 200);
  handler.setTokens(['new', 'both']);
  t.equal(await statusWith('new'), 200);
  t.equal(await statusWith('both'), 200);
  t.equal(await statusWith('old'), 401);
});

t.test('if setTokens throws, the old tokens stay accepted', async (t) => {
  const { port, handler } = await serve(t);
  for (const tokens of [[], ['new', 'not a token'], ['x'.repeat(512)]])
    t.throws(() => handler.setTokens(tokens), TypeError);
  t.equal((await exchange(t, port, message())).status, 200);
  const headers = { Authorization: 'Bearer new' };
  t.equal((await exchange(t, port, message({ headers }))).status, 401);
});
