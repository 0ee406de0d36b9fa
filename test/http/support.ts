import type { Server, Socket } from 'node:net';

import { message } from '../helpers/client.js';

/** A plant whose JSON has a given length in bytes. */
export function plantOfSize(bytes: number): string {
  const rest = '{"id":7,"name":""}'.length;
  return `{"id":7,"name":"${'x'.repeat(bytes - rest)}"}`;
}

/** A request whose Content-Length is `length`, whatever its body is. */
export function declaring(length: number, body: string | Buffer = ''): Buffer {
  return message({ headers: { 'Content-Length': String(length) }, body });
}

/** Resolves as soon as the server has closed its side of the next connection. */
export function nextClose(server: Server): Promise<Socket> {
  return new Promise((resolve) => {
    server.once('connection', (socket: Socket) => socket.on('close', () => resolve(socket)));
  });
}
