import { timingSafeEqual } from 'node:crypto';

import { failures, type Failure } from './failures.js';
import { fieldLines, type HttpRequest } from './request.js';

/** Says what is wrong with the credentials of a request, if anything is. */
export type Authenticator = (req: Pick<HttpRequest, 'rawHeaders'>) => Failure | undefined;

/** The longest bearer token that can be configured, in characters. */
export const MAX_TOKEN_LENGTH = 511;

/** RFC 6750, section 2.1. */
const TOKEN68 = /^[\w.~+/-]+=*$/;

/** RFC 9110, section 11.4, and RFC 6750, section 2.1: the scheme's case does not matter. */
const CREDENTIALS = /^bearer +[\w.~+/-]+=*$/i;

/** Says why a configured bearer token could never be sent, if it could not. */
export function tokenFault(token: string): string | undefined {
  if (token.length > MAX_TOKEN_LENGTH) return `is longer than ${MAX_TOKEN_LENGTH} characters`;
  if (!TOKEN68.test(token)) return 'has characters that a bearer token cannot have (RFC 6750)';
  return undefined;
}

/**
 * Accepts requests that carry one of the tokens. Each is compared with the one presented in full
 * width and constant time, so the time tells neither its length nor which token matched.
 *
 * @throws TypeError if there is no token, or one that could never be sent.
 */
export function createAuthenticator(tokens: readonly string[]): Authenticator {
  // Without types, it could be anything.
  const given: unknown = tokens;
  if (!Array.isArray(given) || tokens.length === 0)
    throw new TypeError('tokens: must be an array of at least one');
  for (const [index, token] of tokens.entries()) {
    const fault = tokenFault(token);
    if (fault) throw new TypeError(`tokens: number ${index + 1} ${fault}`);
  }
  const accepted = tokens.map((token) => fullWidth(Buffer.alloc(MAX_TOKEN_LENGTH + 1), token));
  const presented = Buffer.alloc(MAX_TOKEN_LENGTH + 1);
  return (req) => {
    const [authorization, second] = fieldLines(req, 'authorization');
    if (second !== undefined) return failures.manyAuthorizations;
    if (authorization === undefined || !CREDENTIALS.test(authorization)) return failures.noToken;
    fullWidth(presented, authorization.slice(authorization.lastIndexOf(' ') + 1));
    let matches = 0;
    for (const candidate of accepted) matches += Number(timingSafeEqual(presented, candidate));
    return matches === 0 ? failures.wrongToken : undefined;
  };
}

/**
 * A token, then NULs. A token never holds a NUL and a configured one always leaves room for one, so
 * only the same token gives the same bytes, and one that is cut off equals none.
 */
function fullWidth(buffer: Buffer, token: string): Buffer {
  buffer.fill(0, buffer.write(token, 'latin1'));
  return buffer;
}
