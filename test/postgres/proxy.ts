import { connect, createServer, type Socket } from 'node:net';

import type { Test } from 'tap';

import { listen } from '../helpers/service.js';

/** After how many bytes, counted in both directions, a connection is cut, and how. */
export interface Cut {
  readonly bytes: number;
  readonly mode: 'fin' | 'rst' | 'silence';
}

export interface Proxy {
  /** The URL of the database by way of the proxy. */
  readonly url: string;
  /** Called for each new connection. Returns where the connection is cut, if it is. */
  nextCut: () => Cut | undefined;
}

/** Forwards connections to a database on the loopback interface, and cuts them on request. */
export async function startProxy(t: Test, database: string): Promise<Proxy> {
  const { port } = new URL(database);
  const server = createServer((client) => {
    const upstream = connect(Number(port), '127.0.0.1');
    const cut = proxy.nextCut();
    let left = cut?.bytes ?? Infinity;
    const forward = (from: Socket, to: Socket): void => {
      from.on('data', (data) => {
        if (left === 0) return;
        to.write(data.subarray(0, left));
        left = Math.max(0, left - data.length);
        if (left === 0) sever();
      });
      from.on('end', () => {
        if (left > 0 || cut?.mode !== 'silence') to.end();
      });
      // A connection that is reset closes, too.
      from.on('error', () => undefined);
      from.on('close', () => to.destroy());
    };
    const sever = (): void => {
      for (const socket of [client, upstream])
        if (cut?.mode === 'fin') socket.end();
        else if (cut?.mode === 'rst') socket.resetAndDestroy();
    };
    forward(client, upstream);
    forward(upstream, client);
  });
  const url = database.replace(port, String(await listen(t, server)));
  const proxy: Proxy = { url, nextCut: () => undefined };
  return proxy;
}
