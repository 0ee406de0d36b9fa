import { Failure, failures } from './failures.js';

/** U+FFFD, with which a decoder replaces invalid UTF-8. */
const REPLACEMENT_CHARACTER = '\ufffd';

/**
 * The encodings that can be undone: encoding a decoded text yields the bytes that it was decoded from. In
 * UTF-8, only if these were valid.
 */
const EXACT_ENCODINGS: readonly BufferEncoding[] = ['utf8', 'latin1', 'hex', 'base64', 'base64url'];

/** Returns the bytes that a text was decoded from, or a failure if it cannot be known which they were. */
export function encode(text: string, encoding: BufferEncoding | null): Buffer | Failure {
  const exact = EXACT_ENCODINGS.find((known) => known === encoding);
  if (!exact) return failures.inexact;
  const bytes = Buffer.from(text, exact);
  // Lone surrogates are encoded as U+FFFD, too.
  const isExact = exact !== 'utf8' || !bytes.includes(REPLACEMENT_CHARACTER);
  return isExact ? bytes : failures.inexact;
}
