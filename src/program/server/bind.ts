import type { Server } from 'node:http';
import { Server as TlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';

import { codeOf, reasonOf } from '../../system-error.js';
import { SettingsError } from '../settings/error.js';
import type { Address } from '../settings/rules.js';

/**
 * How many connections may wait to be accepted. Node's default of 511 is too short if a thousand
 * arrive at once.
 */
export const BACKLOG = 4096;

/**
 * Makes a server listen, and resolves to its URL. The settings for its host and port are
 * `${prefix}HOST` and `${prefix}PORT`.
 *
 * @throws Error that names the setting to change; SettingsError for an inherited socket.
 */
export function bind(server: Server, address: Address, prefix: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const onError = (cause: Error): void => reject(bindError(cause, address, prefix));
    server.once('error', onError);
    // As an option, the backlog would have no effect on a descriptor (Node 20-26).
    server.listen(address, BACKLOG, () => {
      server.off('error', onError);
      const bound = server.address();
      if (bound !== null && typeof bound !== 'string') {
        resolve(urlOf(bound, server instanceof TlsServer));
        return;
      }
      // A server that listens would keep the process alive.
      server.close();
      onError(new Error('it is not TCP'));
    });
  });
}

/**
 * An error that names the setting to change: the port if it is in use or reserved for root,
 * otherwise the host.
 */
function bindError(cause: Error, address: Address, prefix: string): Error {
  const reason = reasonOf(cause);
  if ('fd' in address)
    return new SettingsError([`LISTEN_FDS: cannot listen on descriptor ${address.fd}: ${reason}`]);
  const { host, port } = address;
  const name = ['EADDRINUSE', 'EACCES'].includes(String(codeOf(cause))) ? 'PORT' : 'HOST';
  const message = `${prefix}${name}: cannot listen on ${host}, port ${port}: ${reason}`;
  return new Error(message, { cause });
}

function urlOf({ address, family, port }: AddressInfo, secure: boolean): string {
  const host = family === 'IPv6' ? `[${address}]` : address;
  return `${secure ? 'https' : 'http'}://${host}:${port}`;
}
