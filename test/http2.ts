import { once } from 'node:events';
import * as http2 from 'node:http2';
import type { Socket } from 'node:net';
import { text } from 'node:stream/consumers';

import type { Test } from 'tap';

import { TOKEN } from './client.js';
import { conforms, type Received } from './conformance.js';

/** Opens an HTTP/2 connection to a server until the test is over. */
export function http2Session(
  t: Test,
  port: number,
  settings: http2.Settings = {},
  socket?: Socket,
): http2.ClientHttp2Session {
  const connection = socket && { createConnection: () => socket };
  const session = http2.connect(`http://127.0.0.1:${port}`, { settings, ...connection });
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
