import { once } from 'node:events';
import { createServer } from 'node:http';
import * as https from 'node:https';
import { connect as connectTo, type Socket } from 'node:net';
import { connect as connectSecurely } from 'node:tls';

import type { Test } from 'tap';

import { createPlantHandler, type PlantHandler } from '../../dist/index.js';
import { createListener, type ListenerOptions } from '../../dist/program/listener.js';
import { selfSigned } from '../certificate.js';
import { chunk, CHUNKED, message, TOKEN, type Message } from '../client.js';
import { LISTENER, listen } from '../service.js';
import { storeOf } from '../stores.js';

export interface Service {
  readonly handler: PlantHandler;
  /** The ids of the plants that the store was given. */
  readonly stored: bigint[];
}

/** A handler in front of a store; by default, one that accepts every plant immediately. */
export function makeService(store = storeOf(async () => 'created')): Service {
  const stored: bigint[] = [];
  const noting = storeOf((plant) => {
    stored.push(plant.id);
    return store.add(plant);
  });
  const handler = createPlantHandler({ store: noting, tokens: [TOKEN] });
  return { handler, stored };
}

/** A request with a chunked body, empty unless another one is given. */
export function chunked({ headers, body = '', ...rest }: Message): Buffer {
  const chunks = body === '' ? [''] : [body, ''];
  return message({
    ...rest,
    headers: { ...CHUNKED, ...headers },
    body: Buffer.concat(chunks.map(chunk)),
  });
}

export const plant = (id: number): Buffer => message({ body: `{"id":${id},"name":"fern"}` });

export interface Response {
  readonly status: number;
  readonly error: number;
  readonly closes: boolean;
}

/** Splits the bytes that a client has received into responses. */
export function parseResponses(received: string): Response[] {
  return received
    .split(/(?=HTTP\/1\.1 \d{3} )/)
    .filter((each) => each !== '' && !each.startsWith('HTTP/1.1 100 '))
    .map((each) => {
      const [head = '', body = ''] = each.split('\r\n\r\n');
      const status = Number(head.split(' ')[1]);
      const { error = status } = JSON.parse(body) as { error?: number };
      return { status, error, closes: /^connection: close$/im.test(head) };
    });
}

export async function listener(
  t: Test,
  handler: PlantHandler,
  options: Partial<ListenerOptions> = {},
): Promise<number> {
  const started = createListener({ handler, ...LISTENER, ...options });
  t.teardown(() => started.stop(0));
  return Number(new URL(await started.listen('127.0.0.1', 0)).port);
}

const tls = (): { cert: Buffer; key: Buffer } => {
  const { cert, key } = selfSigned();
  return { cert: Buffer.from(cert), key: Buffer.from(key) };
};

export interface TestServer {
  readonly start: (t: Test, handler: PlantHandler) => Promise<number>;
  readonly secure?: boolean;
}

/** The servers of the program. */
export const LISTENERS: Readonly<Record<string, TestServer>> = {
  'the listener': { start: listener },
  'the listener with TLS': {
    start: (t, handler) => listener(t, handler, { tls: tls() }),
    secure: true,
  },
};

/** Servers of applications. */
export const APPLICATIONS: Readonly<Record<string, TestServer>> = {
  'node:http': { start: (t, handler) => listen(t, createServer(handler)) },
  'node:https': {
    start: (t, handler) => listen(t, https.createServer(tls(), handler)),
    secure: true,
  },
};

/** Resolves once the connection, and the TLS handshake on it, are complete. */
export async function connectSocket(port: number, secure = false): Promise<Socket> {
  const socket = secure
    ? connectSecurely({ port, host: '127.0.0.1', rejectUnauthorized: false })
    : connectTo(port, '127.0.0.1');
  await once(socket, secure ? 'secureConnect' : 'connect');
  return socket.setNoDelay();
}

/** Resolves once a server has answered on another connection, so that it has read what came before. */
export async function serveAnother(port: number, secure?: boolean): Promise<void> {
  const socket = await connectSocket(port, secure);
  socket.write(message({ headers: { Authorization: undefined } }));
  await once(socket, 'data');
  socket.destroy();
}
