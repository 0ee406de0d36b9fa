import { timingSafeEqual } from 'node:crypto';

import { failures, type Failure } from './failures.js';
import { isRepeated, type HttpRequest } from './request.js';

/** Returns the failure of a request without valid credentials. */
export type Authenticator = (
  req: Pick<HttpRequest, 'headers' | 'rawHeaders'>,
) => Failure | undefined;

/** The longest bearer token that can be configured, in characters. */
export const MAX_TOKEN_LENGTH = 511;

/** RFC 6750, section 2.1. */
const TOKEN68 = /^[\w.~+/-]+=*$/;

/** RFC 9110, section 11.4, and RFC 6750, section 2.1. The scheme is case-insensitive. */
const CREDENTIALS = /^bearer +[\w.~+/-]+=*$/i;

/** Returns why a configured bearer token could never match a request, if so. */
export function tokenFault(token: string): string | undefined {
  if (token.length > MAX_TOKEN_LENGTH) return `is longer than ${MAX_TOKEN_LENGTH} characters`;
  if (!TOKEN68.test(token)) return 'has characters that a bearer token cannot have (RFC 6750)';
  return undefined;
}

/**
 * Accepts requests that carry one of the tokens. The presented token is compared with each of them at
 * full width in constant time, so the time reveals neither a length nor which token matched.
 *
 * @throws TypeError if there is no token, or one that no request could carry.
 */
export function createAuthenticator(tokens: readonly string[]): Authenticator {
  // A caller without types may pass anything.
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
    if (isRepeated(req, 'authorization')) return failures.manyAuthorizations;
    const { authorization } = req.headers;
    if (authorization === undefined || !CREDENTIALS.test(authorization)) return failures.noToken;
    fullWidth(presented, authorization.slice(authorization.lastIndexOf(' ') + 1));
    let matches = 0;
    for (const candidate of accepted) matches += Number(timingSafeEqual(presented, candidate));
    return matches === 0 ? failures.wrongToken : undefined;
  };
}

/**
 * Writes a token to a buffer and pads it with NULs. No token contains a NUL, and a configured one leaves
 * room for at least one, so equal bytes mean equal tokens: a presented token that is truncated here
 * equals none.
 */
function fullWidth(buffer: Buffer, token: string): Buffer {
  buffer.fill(0, buffer.write(token, 'latin1'));
  return buffer;
}
