import type { Server, Socket } from 'node:net';

import type { Test } from 'tap';

import { connect, expectFailure, message, type Message } from '../helpers/client.js';
import { FERN, inJson } from '../helpers/plants.js';
import { serve } from '../helpers/service.js';

/** A plant whose JSON has a given length in bytes. */
export function plantOfSize(bytes: number): string {
  const rest = '{"id":7,"name":""}'.length;
  return `{"id":7,"name":"${'x'.repeat(bytes - rest)}"}`;
}

/** A request whose Content-Length is `length`, whatever its body is. */
export function declaring(length: number, body: string | Buffer = ''): Buffer {
  return message({ headers: { 'Content-Length': String(length) }, body });
}

/** Resolves once the server has closed its side of the next connection. */
export function untilNextClose(server: Server): Promise<Socket> {
  return new Promise((resolve) => {
    server.once('connection', (socket: Socket) => socket.on('close', () => resolve(socket)));
  });
}

/** Values of one part of a request, and the answer that they get. */
export interface Part {
  readonly request: (value: string) => Message;
  readonly stored: readonly string[];
  readonly refused: readonly string[];
  readonly status: number;
  /** Default: the status. */
  readonly error?: number;
}

export const inHeader =
  (name: string): Part['request'] =>
  (value) => ({ headers: { [name]: value } });

/** Checks for each value of each part whether a plant is stored, and the answer if it is not. */
export async function expectDecisions(
  t: Test,
  parts: Readonly<Record<string, Part>>,
): Promise<void> {
  const { port, log } = await serve(t);
  const client = await connect(t, port);
  for (const [about, { request, stored, refused, ...expected }] of Object.entries(parts)) {
    for (const value of refused) {
      client.send(message(request(value)));
      const headers = { connection: 'keep-alive' };
      expectFailure(t, await client.answer(), { headers, ...expected }, `${about}: "${value}"`);
    }
    const before = log.size;
    for (const [n, value] of stored.entries()) {
      const body = inJson({ ...FERN, id: BigInt(before + n) });
      client.send(message({ ...request(value), body }));
      t.equal((await client.answer()).status, 200, `${about}: "${value}"`);
    }
    t.equal(log.size, before + stored.length, about);
  }
}

/** A request in a version of HTTP. */
export function inVersion(version: string, parts: Message): Buffer {
  return Buffer.from(message(parts).toString().replace('HTTP/1.1', `HTTP/${version}`));
}
