import crypto from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';

import t from 'tap';

import { createAuthenticator } from '../../dist/http/auth.js';
import { failures } from '../../dist/http/failures.js';
import { MAX_TOKEN_LENGTH } from '../../dist/http/limits.js';
import { statusWith, TOKEN } from '../helpers/client.js';
import { serve } from '../helpers/service.js';
import { expectDecisions, inHeader } from './support.js';

/** The failure with which an authenticator refuses an Authorization header, or undefined. */
function judge(accepted: readonly string[], authorization?: string) {
  const headers = authorization === undefined ? {} : { authorization };
  return createAuthenticator(accepted)({ headers });
}

t.test('every character of RFC 6750, section 2.1, may be in a token', async (t) => {
  const token = 'AZaz09-._~+/==';
  t.equal(judge([TOKEN, token], `Bearer ${token}`), undefined);
  t.equal(judge([TOKEN], `Bearer ${token}`), failures.wrongToken);
});

t.test('a token that resembles an accepted one is refused', async (t) => {
  for (const accepted of [TOKEN, 'x'.repeat(MAX_TOKEN_LENGTH)]) {
    const others = [
      accepted.slice(0, -1),
      accepted.slice(1),
      `${accepted}x`,
      `${accepted}=`,
      accepted.toUpperCase(),
      accepted.padEnd(MAX_TOKEN_LENGTH + 1, 'x'),
      accepted.padEnd(8_000, 'x'),
    ];
    for (const other of others)
      t.equal(judge([accepted, 'short'], `Bearer ${other}`), failures.wrongToken, other);
    t.equal(judge(['short', accepted], `Bearer ${accepted}`), undefined, accepted);
  }
});

t.test(
  'every token is compared in constant time, over the length of the longest one',
  async (t) => {
    // Teardowns run in reverse order: this one runs after `timingSafeEqual` is restored.
    t.teardown(syncBuiltinESMExports);
    const calls = t.capture(crypto, 'timingSafeEqual', crypto.timingSafeEqual);
    syncBuiltinESMExports();
    const accepted = ['first', 'a-longer-one', 'last'];
    for (const token of [...accepted, 'x', 'none-of-them']) {
      judge(accepted, `Bearer ${token}`);
      const sizes = calls().map(({ args: [presented] }) => presented.byteLength);
      t.strictSame(sizes, Array(accepted.length).fill('a-longer-one'.length), token);
    }
  },
);

t.test('a header without a bearer token counts as no credentials', async (t) => {
  const others = [
    '',
    `Bearer${TOKEN}`,
    `Bearer\t${TOKEN}`,
    `Bearer ${TOKEN} `,
    `Bearer ${TOKEN},Bearer ${TOKEN}`,
    'Bearer =',
    'Bearer pl\u00e4nt',
    `Basic ${Buffer.from(`user:${TOKEN}`).toString('base64')}`,
    `XBearer ${TOKEN}`,
    TOKEN,
  ];
  for (const credentials of others)
    t.equal(judge([TOKEN], credentials), failures.noToken, JSON.stringify(credentials));
  t.equal(judge([TOKEN]), failures.noToken, 'no header');
});

t.test('tokens that no request could carry, or too many tokens, are refused', async (t) => {
  const noArray = 'tokens: must be an array of at least one string';
  const characters = 'tokens: number 1 has characters';
  const rows: readonly [about: string, tokens: unknown, message: string][] = [
    ['none', [], noArray],
    ['one outside of an array', 'marker', noArray],
    ['a variable that is not set', [undefined], 'tokens: number 1 is not a string'],
    ['an empty one', [''], 'tokens: number 1 is empty'],
    ['white space', ['marker marker'], characters],
    ['a NUL', ['marker\0'], characters],
    ['a letter beyond ASCII', ['märker'], characters],
    ['nothing but padding', ['=='], characters],
    ['512 characters', ['marker'.padEnd(512, 'x')], 'tokens: number 1 is longer than 511'],
    ['a bad one among good ones', [TOKEN, 'marker!', TOKEN], 'tokens: number 2 has characters'],
    ['101 tokens', Array<string>(101).fill(TOKEN), 'tokens: must not be more than 100'],
  ];
  for (const [about, tokens, message] of rows) {
    const create = () => createAuthenticator(tokens as string[]);
    const error = t.throws(create, TypeError, about) as Error;
    t.ok(error.message.startsWith(message), `${about}: ${error.message}`);
    t.notMatch(error.message, /m.rker/, `${about}: no token in the message`);
  }
  t.doesNotThrow(() => createAuthenticator(Array<string>(100).fill('x'.repeat(511))));
});

t.test('setTokens replaces the accepted tokens at once, unless it throws', async (t) => {
  const { port, handler } = await serve(t, { tokens: ['old', 'both'] });
  const statuses = () =>
    Promise.all(['old', 'both', 'new'].map((token) => statusWith(t, port, token)));
  for (const tokens of [[], ['new', 'not a token']])
    t.throws(() => handler.setTokens(tokens), TypeError);
  t.strictSame(await statuses(), [200, 200, 401]);
  handler.setTokens(['new', 'both']);
  t.strictSame(await statuses(), [401, 200, 200]);
});

t.test('a request without an accepted token is refused', async (t) => {
  await expectDecisions(t, {
    Authorization: {
      request: inHeader('Authorization'),
      stored: [`bEARER   ${TOKEN} `],
      refused: ['', TOKEN, `Basic ${TOKEN}`, `Bearer ${TOKEN}n`, `Bearer ${TOKEN} ${TOKEN}`],
      status: 401,
    },
  });
});
