import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { connect as connectHttp2 } from 'node:http2';
import { request as httpsRequest } from 'node:https';
import { Server, type AddressInfo, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';

import type { Test } from 'tap';

import type { PlantStore } from '../../dist/index.js';
import { selfSigned } from '../certificate.js';
import type { Received } from '../conformance.js';
import { runExample } from '../example.js';
import { http2Answer, http2Post } from '../http2.js';

/** A documented server, on a port of its own. */
export interface Application {
  readonly server: Server;
  readonly port: number;
  /** The certificate of a server that speaks TLS. */
  readonly cert: string;
}

/**
 * Runs the documented lines that make a server, in a folder of the test's own. The one thing that
 * is changed is the port.
 */
export async function startApplication(t: Test, lines: string): Promise<Application> {
  const { key, cert } = selfSigned();
  const files = { 'key.pem': key, 'cert.pem': cert };
  const { servers, release } = captureServers();
  const { store } = await runExample(t, `${lines}\nexport { store };`, files);
  release();
  const [server] = servers;
  if (!server) throw new Error('the lines start no server');
  if (!server.listening) await once(server, 'listening');

  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => sockets.add(socket));
  t.teardown(async () => {
    for (const each of servers) each.close();
    for (const socket of sockets) socket.destroy();
    await (store as PlantStore).close();
  });
  return { server, port: (server.address() as AddressInfo).port, cert };
}

type Listen = (this: Server, ...args: unknown[]) => Server;

/** From now on, every server listens on a free port instead of the given one. */
function captureServers(): { readonly servers: Server[]; readonly release: () => void } {
  const servers: Server[] = [];
  const original = Object.getOwnPropertyDescriptor(Server.prototype, 'listen');
  const { value: listen } = original as { value: Listen };
  const listenOnFreePort: Listen = function (first, ...rest) {
    const options = typeof first === 'number' ? { port: first } : first;
    const hasPort = typeof options === 'object' && options !== null && 'port' in options;
    if (hasPort) servers.push(this);
    return listen.call(this, hasPort ? { ...options, port: 0 } : first, ...rest);
  };
  Server.prototype.listen = listenOnFreePort;
  return { servers, release: () => (Server.prototype.listen = listen) };
}

export type Protocol = 'HTTP/1.1' | 'HTTP/1.1 over TLS' | 'HTTP/2';

export interface Message {
  readonly path: string;
  readonly token: string;
  readonly body: string;
}

/** Sends a plant to an application. */
export async function send(
  { port, cert }: Application,
  protocol: Protocol,
  { path, token, body }: Message,
): Promise<Received> {
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  if (protocol === 'HTTP/2') {
    const session = connectHttp2(`https://localhost:${port}`, { ca: cert });
    const stream = http2Post(session, { ':path': path, ...headers }).end(body);
    const answer = await http2Answer(stream);
    session.destroy();
    return answer;
  }
  const options = { host: 'localhost', port, path, method: 'POST', headers, agent: false };
  const request =
    protocol === 'HTTP/1.1' ? httpRequest(options) : httpsRequest({ ...options, ca: cert });
  request.end(body);
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    body: await text(response),
  };
}
