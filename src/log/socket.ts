import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { text } from 'node:stream/consumers';

/** A Unix socket on which this process listens. */
export interface ListeningSocket {
  close(): void;
}

/** Binds a Unix socket and listens on it. Each connection is sent what `answer` returns at that moment. */
export async function listen(path: string, answer: () => string): Promise<ListeningSocket> {
  const server = createServer((socket) => socket.on('error', () => undefined).end(answer()));
  // Without `exclusive`, the socket of a cluster worker would belong to the primary.
  server.unref().listen({ path, exclusive: true });
  await once(server, 'listening');
  return server;
}

/** Connects to a Unix socket and resolves to its answer. Rejects if it is not complete in time. */
export function ask(path: string, timeoutMs: number): Promise<string> {
  const socket = connect(path);
  // Not `socket.setTimeout`, which starts again with each byte.
  const timer = setTimeout(() => socket.destroy(), timeoutMs);
  return text(socket).finally(() => clearTimeout(timer));
}
