import type { Server, Socket } from 'node:net';

import { message } from '../client.js';

/**
 * Limits with which the memory of one small request fills the budget. A later request gets a 503 until that
 * memory is released.
 */
export const ONE_AT_A_TIME = { maxBodyBytes: 100, maxBufferedBytes: 4096 };

/** A plant whose JSON has a given length in bytes. */
export function plantOf(bytes: number): string {
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
