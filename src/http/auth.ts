// The global is a getter, which takes time on the path of a request.
import { Buffer } from 'node:buffer';
import { timingSafeEqual } from 'node:crypto';

import { failures, type Failure } from './failures.js';
import { MAX_TOKEN_LENGTH, MAX_TOKENS } from './limits.js';
import { isRepeated, type HttpRequest } from './request.js';

/** RFC 6750, section 2.1. */
const TOKEN68 = /^[\w.~+/-]+=*$/;

/** RFC 9110, section 11.4, and RFC 6750, section 2.1. The scheme is case-insensitive. */
const CREDENTIALS = /^bearer +([\w.~+/-]+=*)$/i;

/** Why a value cannot be configured as a bearer token, or `undefined`. */
export function tokenProblem(token: unknown): string | undefined {
  if (typeof token !== 'string') return 'is not a string';
  if (token === '') return 'is empty';
  if (token.length > MAX_TOKEN_LENGTH) return `is longer than ${MAX_TOKEN_LENGTH} characters`;
  if (!TOKEN68.test(token)) return 'has characters that a bearer token cannot have (RFC 6750)';
  // PLANT_STORE_TOKEN is split at white space: if somebody pastes `Bearer <token>` there, this word
  // would become a token that everybody knows.
  if (/^bearer$/i.test(token)) return 'is the word Bearer, which is no part of a token';
  return undefined;
}

/**
 * Creates a function that returns the failure of a request, or `undefined` if the request carries
 * one of the tokens. Every token is compared with the presented one in constant time, over the
 * length of the longest token. The time reveals neither which token matched nor where a wrong one
 * differs.
 *
 * @throws TypeError if there is no token, one that is not valid, or more than {@link MAX_TOKENS}.
 */
export function createAuthenticator(tokens: readonly string[]) {
  // A caller without types may pass anything.
  const given: unknown = tokens;
  if (!Array.isArray(given) || tokens.length === 0)
    throw new TypeError('tokens: must be an array of at least one string');
  if (tokens.length > MAX_TOKENS)
    throw new TypeError(`tokens: must not be more than ${MAX_TOKENS}`);
  for (const [index, token] of tokens.entries()) {
    const problem = tokenProblem(token);
    if (problem) throw new TypeError(`tokens: number ${index + 1} ${problem}`);
  }
  // Padded with NULs, which no token contains.
  const longest = Math.max(...tokens.map((token) => token.length));
  const accepted = tokens.map((token) => Buffer.from(token.padEnd(longest, '\0'), 'latin1'));
  // One buffer for all requests: creating one for each takes longer than the comparison.
  const presented = Buffer.alloc(longest);
  return (req: Pick<HttpRequest, 'headers' | 'rawHeaders'>): Failure | undefined => {
    if (isRepeated(req, 'authorization')) return failures.manyAuthorizations;
    const token = CREDENTIALS.exec(req.headers.authorization ?? '')?.[1];
    if (token === undefined) return failures.noToken;
    if (token.length > longest) return failures.wrongToken;
    presented.fill(0, presented.write(token, 'latin1'));
    let matches = 0;
    for (const each of accepted) matches += Number(timingSafeEqual(presented, each));
    return matches === 0 ? failures.wrongToken : undefined;
  };
}
