import t from 'tap';

import { encode } from '../../dist/http/encoding.js';
import { failures } from '../../dist/http/failures.js';

t.test('text is encoded to the bytes that it was decoded from', async (t) => {
  const bytes = Buffer.from('f\u00e4rn \u{1f33f}');
  for (const encoding of ['utf8', 'latin1', 'hex', 'base64', 'base64url'] as const)
    t.strictSame(encode(bytes.toString(encoding), encoding), bytes, encoding);
  const replacement = Buffer.from('\ufffd');
  t.strictSame(encode(replacement.toString('latin1'), 'latin1'), replacement, 'U+FFFD in latin1');
});

t.test('text is refused if it is not known which bytes it was decoded from', async (t) => {
  for (const encoding of ['ascii', 'utf16le', 'ucs2', null] as const)
    t.equal(encode('fern', encoding), failures.inexact, String(encoding));
  t.equal(encode('\ufffd', 'utf8'), failures.inexact, 'invalid UTF-8 may have been replaced');
  t.equal(encode('\ud800', 'utf8'), failures.inexact, 'a lone surrogate');
});
