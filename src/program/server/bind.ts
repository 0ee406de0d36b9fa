import type { Server } from 'node:http';
import { Server as TlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';

import { codeOf, reasonOf } from '../../system-error.js';

/** The queue of connections to accept: Node's default of 511 is too short for a thousand at once. */
const BACKLOG = 4096;

/** Where a server listens; `fd` is an inherited socket, in which connections wait while the program restarts. */
export type Address = { readonly host: string; readonly port: number } | { readonly fd: number };

/**
 * Makes a server listen, and resolves to its URL.
 *
 * @throws Error that says where it cannot listen, with the error of the system as its cause.
 */
export function bind(server: Server, address: Address): Promise<string> {
  return new Promise((resolve, reject) => {
    server.once('error', onError);
    function onError(cause: Error): void {
      const where =
        'fd' in address ? `descriptor ${address.fd}` : `${address.host}, port ${address.port}`;
      reject(new Error(`cannot listen on ${where}: ${reasonOf(cause)}`, { cause }));
    }
    // Otherwise the primary of a cluster would accept connections for its workers: it would share the
    // port between logs, and pass a connection that one worker drops to the next, again and again.
    const options = { ...address, exclusive: true };
    // As an option, the backlog would have no effect on a descriptor (Node 20-26).
    server.listen(options, BACKLOG, () => {
      server.off('error', onError);
      const bound = server.address();
      if (bound === null || typeof bound === 'string') onError(new Error('it is not TCP'));
      else resolve(urlOf(bound, server instanceof TlsServer));
    });
  });
}

/** Names the setting that is at fault if {@link bind} fails: of a port in use, or for root only, that of the port. */
export function blameSetting(error: unknown, prefix: string): Error {
  const { message, cause } = error as Error;
  const isPort = ['EADDRINUSE', 'EACCES'].includes(String(codeOf(cause)));
  return new Error(`${prefix}${isPort ? 'PORT' : 'HOST'}: ${message}`, { cause });
}

function urlOf({ address, family, port }: AddressInfo, secure: boolean): string {
  const host = family === 'IPv6' ? `[${address}]` : address;
  return `${secure ? 'https' : 'http'}://${host}:${port}`;
}
