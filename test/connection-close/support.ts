import { createServer } from 'node:http';
import type { Socket } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { once } from 'node:events';

import type { Test } from 'tap';

import { createPlantHandler, type PlantHandler } from '../../dist/index.js';
import type { PlantServerOptions } from '../../dist/program/server/http-server.js';
import { selfSigned } from '../certificate.js';
import {
  chunk,
  CHUNKED,
  message,
  openSocket,
  parseAnswers,
  TOKEN,
  type Message,
} from '../client.js';
import { listen, startPlantServer } from '../service.js';
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

export const plant = (id: number, parts: Message = {}): Buffer =>
  message({ body: `{"id":${id},"name":"fern"}`, ...parts });

/** A request with a chunked body, which is empty. */
export const chunked = (headers: Message['headers'] = {}): Buffer =>
  message({ headers: { ...CHUNKED, ...headers }, body: chunk('') });

/** The same request in HTTP/1.0. */
export const inHttp10 = (request: Buffer): Buffer =>
  Buffer.from(request.toString().replace('HTTP/1.1', 'HTTP/1.0'));

export interface Response {
  /** Of a 200, which has no `error`, the status. */
  readonly error: number;
  readonly closes: boolean;
}

/** Resolves to the responses on a connection once it is closed. */
export async function responsesOn(socket: Socket): Promise<Response[]> {
  const { answers } = parseAnswers(await buffer(socket));
  return answers.map(({ status, headers, body }) => {
    const { error = status } = JSON.parse(body) as { error?: number };
    return { error, closes: headers.connection === 'close' };
  });
}

export function tlsMaterial(): { cert: Buffer; key: Buffer } {
  const { cert, key } = selfSigned();
  return { cert: Buffer.from(cert), key: Buffer.from(key) };
}

/** Starts the server of the program, and resolves to its port. */
export async function startServer(
  t: Test,
  handler: PlantHandler,
  options: Partial<PlantServerOptions> = {},
): Promise<number> {
  return (await startPlantServer(t, { handler, ...options })).port;
}

/** Starts the server of an application, and resolves to its port. */
export const startApplication = (t: Test, handler: PlantHandler): Promise<number> =>
  listen(t, createServer(handler));

/** Resolves once a server has answered on another connection, so that it has read what came before. */
export async function serveAnother(port: number): Promise<void> {
  const socket = await openSocket(port);
  socket.write(message({ headers: { Authorization: undefined } }));
  await once(socket, 'data');
  socket.destroy();
}
