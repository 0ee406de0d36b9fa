import type { Server } from 'node:http';
import { Server as TlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';

import { codeOf, reasonOf } from '../system-error.js';

/** The queue of connections to accept: Node's default of 511 is too short for a thousand at once. */
const BACKLOG = 4096;

/**
 * Resolves to the URL on which a server listens.
 *
 * @throws Error that says where it cannot listen, with the error of the system as its cause.
 */
export function listen(server: Server, place: { host: string; port: number } | { fd: number }) {
  return new Promise<string>((resolve, reject) => {
    server.once('error', onError);
    function onError(cause: Error): void {
      const where = 'fd' in place ? `descriptor ${place.fd}` : `${place.host}, port ${place.port}`;
      reject(new Error(`cannot listen on ${where}: ${reasonOf(cause)}`, { cause }));
    }
    // Otherwise the primary of a cluster would accept connections for its workers: it would share the
    // port between logs, and pass a connection that one worker drops to the next, again and again.
    const options = { ...place, exclusive: true };
    // As an option, the backlog would have no effect on a descriptor (Node 20-26).
    server.listen(options, BACKLOG, () => {
      server.off('error', onError);
      const address = server.address();
      if (address === null || typeof address === 'string') onError(new Error('it is not TCP'));
      else resolve(urlOf(address, server instanceof TlsServer));
    });
  });
}

/** Names the setting that is at fault if {@link listen} fails: of a port in use, or for root only, that of the port. */
export function blameSetting(error: unknown, prefix: string): Error {
  const { message, cause } = error as Error;
  const isPort = ['EADDRINUSE', 'EACCES'].includes(String(codeOf(cause)));
  return new Error(`${prefix}${isPort ? 'PORT' : 'HOST'}: ${message}`, { cause });
}

function urlOf({ address, family, port }: AddressInfo, secure: boolean): string {
  const host = family === 'IPv6' ? `[${address}]` : address;
  return `${secure ? 'https' : 'http'}://${host}:${port}`;
}
