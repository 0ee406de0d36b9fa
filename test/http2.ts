import { once } from 'node:events';
import * as http2 from 'node:http2';
import { text } from 'node:stream/consumers';

import type { Test } from 'tap';

import { TOKEN } from './client.js';
import { conforms, type Received } from './conformance.js';

/** Opens an HTTP/2 connection to a server until the test is over. */
export function http2Session(
  t: Test,
  port: number,
  settings: http2.Settings = {},
): http2.ClientHttp2Session {
  const session = http2.connect(`http://127.0.0.1:${port}`, { settings });
  session.on('error', () => undefined);
  t.teardown(() => session.destroy());
  return session;
}

/** Begins a request that creates a plant, unless other header fields are given. */
export function http2Post(
  session: http2.ClientHttp2Session,
  headers: http2.OutgoingHttpHeaders = {},
): http2.ClientHttp2Stream {
  return session.request({
    ':method': 'POST',
    ':path': '/plants',
    authorization: `Bearer ${TOKEN}`,
    'content-type': 'application/json',
    ...headers,
  });
}

/** Resolves to the answer to a request. Rejects if it is not one that the OpenAPI document describes. */
export async function http2Answer(
  stream: http2.ClientHttp2Stream,
  method?: string,
): Promise<Received> {
  const [headers] = (await once(stream, 'response')) as [
    http2.IncomingHttpHeaders & { ':status': number },
  ];
  const status = headers[':status'];
  const body = await text(stream);
  conforms({ status, headers, body }, method);
  return { status, headers, body };
}

export const FRAMES = { DATA: 0x0, HEADERS: 0x1, RST_STREAM: 0x3, SETTINGS: 0x4 } as const;
export const FLAGS = { END_STREAM: 0x1, END_HEADERS: 0x4 } as const;

/** A frame of HTTP/2 (RFC 9113, section 4.1) in the first stream. */
export function http2Frame(type: number, flags: number, payload: Buffer, stream = 1): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.set([type, flags], 3);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

/** What a client sends first: the preface and empty settings (RFC 9113, section 3.4). */
export const HTTP2_BEGINNING = Buffer.concat([
  Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
  http2Frame(FRAMES.SETTINGS, 0, Buffer.alloc(0), 0),
]);

/**
 * The header fields of a request that creates a plant, of up to 127 bytes each, without compression
 * (RFC 7541, section 6.2.2). Other than with Node's client, a field may come several times.
 */
export function http2Fields(...more: readonly (readonly [name: string, value: string])[]): Buffer {
  const fields = [
    [':method', 'POST'],
    [':path', '/plants'],
    [':scheme', 'http'],
    [':authority', 'localhost'],
    ...more,
  ];
  const strings = fields.map((field) => [
    Buffer.alloc(1),
    ...field.map((text) => Buffer.from(`${String.fromCharCode(text.length)}${text}`)),
  ]);
  return Buffer.concat(strings.flat());
}
