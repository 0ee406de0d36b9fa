import { randomInt } from 'node:crypto';
import { subscribe, unsubscribe, type ChannelListener } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { syncBuiltinESMExports } from 'node:module';
import type { AddressInfo, Server, Socket } from 'node:net';
import timers from 'node:timers';

import type { Test } from 'tap';

import {
  createPlantHandler,
  type PlantHandler,
  type PlantHandlerOptions,
  type PlantLog,
} from '../../dist/index.js';
import {
  createPlantServer,
  type PlantServer,
  type PlantServerOptions,
} from '../../dist/program/server/http-server.js';
import { TOKEN } from './client.js';
import { openNewLog } from './stores.js';

/**
 * Until the test ends, each call of `performance.now` moves the clock forward by `ms` milliseconds.
 */
export function stepClock(t: Test, ms: number): void {
  let now = 0;
  t.intercept(performance, 'now', { value: () => (now += ms) });
}

/**
 * Until the test ends, lets timers of `time` milliseconds expire at once. Returns a function that
 * returns how many of these timers have been started.
 */
export function expireAtOnce(t: Test, time: number): () => number {
  const { setTimeout } = timers;
  let count = 0;
  const value = (onExpiry: () => void, ms?: number): NodeJS.Timeout => {
    if (ms === time) count++;
    return setTimeout(onExpiry, ms === time ? 0 : ms);
  };
  // Teardowns run in reverse order: this one runs after `setTimeout` is restored.
  t.teardown(syncBuiltinESMExports);
  for (const owner of [globalThis, timers]) t.intercept(owner, 'setTimeout', { value });
  syncBuiltinESMExports();
  return () => count;
}

/** Subscribes to a channel until the test is over. */
export function listenTo(t: Test, name: string, subscriber: ChannelListener): void {
  subscribe(name, subscriber);
  t.teardown(() => unsubscribe(name, subscriber));
}

/** Listens on a free port until the test is over. */
export async function listen(t: Test, server: Server): Promise<number> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => sockets.add(socket));
  t.teardown(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return (server.address() as AddressInfo).port;
}

/**
 * A port of the loopback interface that is free at the moment. It is below the range from which
 * Linux chooses ports for connections and for servers that listen on port 0, so that it stays free.
 * It is above 10080, a port that `fetch` refuses.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(10_081, 32_768);
    const server = createServer();
    try {
      await once(server.listen(port, '127.0.0.1'), 'listening');
    } catch {
      continue;
    }
    await new Promise((resolve) => server.close(resolve));
    return port;
  }
}

/** Starts the HTTP server of the program, which listens until the test is over. */
export async function startPlantServer(
  t: Test,
  options: Pick<PlantServerOptions, 'handler'> & Partial<PlantServerOptions>,
): Promise<PlantServer & { readonly url: string; readonly port: number }> {
  const server = createPlantServer({ maxConnections: 100, keepAliveMs: 75_000, ...options });
  t.teardown(() => server.stop());
  const url = await server.listen({ host: '127.0.0.1', port: 0 });
  return { ...server, url, port: Number(new URL(url).port) };
}

export interface Service {
  readonly port: number;
  readonly server: Server;
  readonly handler: PlantHandler;
  readonly log: PlantLog;
  /** The causes of the faults that the handler reported. */
  readonly reported: unknown[];
}

/** Starts a server that has only the handler, with a new log or the store of the options. */
export async function serve(t: Test, options: Partial<PlantHandlerOptions> = {}): Promise<Service> {
  const log = await openNewLog(t);
  const reported: unknown[] = [];
  const handler = createPlantHandler({
    store: log,
    tokens: [TOKEN],
    report: (_, cause) => reported.push(cause),
    ...options,
  });
  const server = createServer(handler);
  return { port: await listen(t, server), server, handler, log, reported };
}

/** Resolves once no memory is reserved for requests. */
export async function untilReleased({ handler }: Pick<Service, 'handler'>): Promise<void> {
  while (handler.bufferedBytes() > 0) await new Promise(setImmediate);
}
