/** A connection that sends one plant at a time: fewer instructions than `node:http` on the client's side. */

import { connect } from 'node:net';

/**
 * @typedef {object} Connection
 * @property {(id: number) => void} send once the answer to the request before has arrived
 */

/**
 * @param {{ port: number, token: string }} server
 * @param {object} events
 * @param {(connection: Connection) => void} events.onConnect
 * @param {(connection: Connection, isOpen: boolean) => void} events.onAnswer for a 200; whether the
 *   server keeps the connection open
 * @param {(error: Error) => void} events.onFailure another answer, or a request that got none
 */
export function openConnection({ port, token }, { onConnect, onAnswer, onFailure }) {
  const socket = connect({ host: '127.0.0.1', port, noDelay: true });
  let isPending = true;
  let received = '';

  const connection = {
    send(id) {
      const body = `{"id":${id},"name":"Boston fern","tag":"indoor"}`;
      isPending = true;
      received = '';
      socket.write(
        `POST /plants HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${token}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
      );
    },
  };

  socket.once('connect', () => onConnect(connection));
  socket.on('data', (chunk) => {
    received += chunk.latin1Slice();
    const end = received.indexOf('\r\n\r\n');
    if (end < 0) return;
    const [, length] = /^content-length: (\d+)/im.exec(received) ?? [];
    if (received.length < end + 4 + Number(length)) return;
    isPending = false;
    if (received.startsWith('HTTP/1.1 200 ')) {
      onAnswer(connection, !/^connection: close/im.test(received));
    } else onFailure(new Error(received));
  });
  socket.once('error', () => undefined);
  socket.once('close', () => {
    if (isPending) onFailure(new Error('a connection was closed before the answer'));
  });
}
