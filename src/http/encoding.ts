import { Failure, failures } from './failures.js';

/** U+FFFD, with which a decoder replaces invalid UTF-8. */
const REPLACEMENT_CHARACTER = '\ufffd';

/** The encodings from which a text returns to the bytes it was decoded from; UTF-8 if they were valid. */
const EXACT_ENCODINGS: readonly unknown[] = ['utf8', 'latin1', 'hex', 'base64', 'base64url'];

/** Whether a text that was decoded from UTF-8 may have replaced some of its bytes. */
export function mayBeInexact(text: string): boolean {
  return text.includes(REPLACEMENT_CHARACTER);
}

/** Returns the bytes that a text was decoded from, or a failure if it cannot be known which they were. */
export function encode(text: string, encoding: BufferEncoding | null): Buffer | Failure {
  if (encoding === null || !EXACT_ENCODINGS.includes(encoding)) return failures.inexact;
  const bytes = Buffer.from(text, encoding);
  // Encoding replaces lone surrogates in the same way.
  const isExact = encoding !== 'utf8' || !bytes.includes(REPLACEMENT_CHARACTER);
  return isExact ? bytes : failures.inexact;
}
