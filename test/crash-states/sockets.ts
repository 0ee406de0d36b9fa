import { EventEmitter } from 'node:events';
import { syncBuiltinESMExports } from 'node:module';
import net from 'node:net';
import { Readable } from 'node:stream';

import type { Listener, Machine } from './simulated-fs.js';

let current: Machine | undefined;

function machine(): Machine {
  if (!current) throw new Error('there is no machine');
  return current;
}

/** Puts the Unix sockets of this process on a machine, until it is called again. */
export function useSocketsOf(next: Machine): void {
  current = next;
}

type OnSocket = (socket: { on(): { end(text: string): void } }) => void;

/** A server of `node:net`, as far as the lock uses it. */
class SimulatedServer extends EventEmitter {
  private listener: Listener | undefined;

  constructor(private readonly onSocket: OnSocket) {
    super();
  }

  unref(): this {
    return this;
  }

  listen({ path }: { readonly path: string }): void {
    const listening = machine().listen(path, (answer) => {
      this.onSocket({ on: () => ({ end: answer }) });
    });
    listening.then(
      (listener) => {
        this.listener = listener;
        this.emit('listening');
      },
      (error: unknown) => this.emit('error', error),
    );
  }

  close(): void {
    this.listener?.close();
  }
}

/** A socket of `node:net` that has connected to a simulated one, or has not. */
function connect(path: string): Readable {
  const socket = new Readable({ read: () => undefined });
  try {
    machine().connect(path)((text) => {
      socket.push(text);
      socket.push(null);
    });
  } catch (error) {
    socket.destroy(error as Error);
  }
  return Object.assign(socket, { setTimeout: () => undefined });
}

Object.assign(net, {
  createServer: (onSocket: OnSocket) => new SimulatedServer(onSocket),
  connect,
});
syncBuiltinESMExports();
