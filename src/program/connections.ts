import type { Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

/** The open connections of a server. One is idle while no request on it is being answered. */
export interface Connections {
  has(socket: Duplex): boolean;
  /**
   * Call when a request has arrived. Its connection is idle again once the response is closed, unless it says
   * `Connection: close`.
   */
  begin(res: ServerResponse): void;
  /** The latest response on a connection, or `undefined` if it is idle. */
  latest(socket: Duplex): ServerResponse | undefined;
  /** The latest response of each connection, if it has not begun. */
  unanswered(): Iterable<ServerResponse>;
  /**
   * From now on, closes each connection once it has been idle for so many milliseconds, or at most twice as
   * long. The time before the call does not count.
   */
  limitIdle(ms: number): void;
  destroyAll(): void;
}

/**
 * Tracks the connections that a server emits as `event`, and closes each once it has been idle for
 * `keepAliveMs` milliseconds, or at most twice as long. `keepAliveMs` must exceed the idle timeout of a proxy in
 * front of the program: otherwise the proxy could send a request on a connection that is being closed.
 */
export function trackConnections(
  event: 'connection' | 'secureConnection',
  server: Server,
  keepAliveMs: number,
): Connections {
  const responses = new Map<Duplex, ServerResponse | undefined>();
  /** The connections that were idle at the last check, with the bytes received on each. */
  let idle = new Map<Duplex, number>();
  let idleCheck: NodeJS.Timeout | undefined;

  server.on(event, (socket: Socket) => {
    responses.set(socket, undefined);
    socket.once('close', () => responses.delete(socket));
  });
  limitIdle(keepAliveMs);
  server.once('close', () => clearInterval(idleCheck));

  function forget(this: ServerResponse): void {
    const { socket } = this.req;
    if (responses.get(socket) === this && !isFinal(this)) responses.set(socket, undefined);
  }

  function limitIdle(ms: number): void {
    clearInterval(idleCheck);
    idle.clear();
    checkIdle();
    const check = setInterval(() => {
      // An immediate runs after everything that has arrived has been read. The limit may have changed by then.
      setImmediate(() => idleCheck === check && checkIdle());
    }, ms);
    idleCheck = check.unref();
  }

  /** Closes connections that have been idle, and have sent nothing, since the last check. */
  function checkIdle(): void {
    const before = idle;
    idle = new Map();
    for (const [socket, res] of responses) {
      if (res) continue;
      const { bytesRead } = socket as Duplex & Pick<Socket, 'bytesRead'>;
      if (before.get(socket) === bytesRead) socket.destroy();
      else idle.set(socket, bytesRead);
    }
  }

  return {
    has: (socket) => responses.has(socket),
    begin(res) {
      responses.set(res.req.socket, res);
      // Otherwise an idle connection would hold its latest request and response in memory.
      res.on('close', forget);
    },
    latest: (socket) => responses.get(socket),
    *unanswered() {
      for (const res of responses.values()) if (res && !res.headersSent) yield res;
    },
    limitIdle,
    destroyAll() {
      for (const socket of responses.keys()) socket.destroy();
    },
  };
}

/** Whether a response is the last one of its connection. */
export function isFinal(res: ServerResponse): boolean {
  return res.getHeader('connection') === 'close';
}
