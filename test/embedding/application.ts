import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { connect as connectHttp2 } from 'node:http2';
import { request as httpsRequest } from 'node:https';
import { Server, type AddressInfo, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';

import type { Test } from 'tap';

import type { PlantStore } from '../../dist/index.js';
import { selfSigned } from '../certificate.js';
import { FERN } from '../client.js';
import type { Received } from '../conformance.js';
import { runExample } from '../example.js';
import { http2Answer, http2Post } from '../http2.js';
import { TOKEN } from './embeddings.js';

/** A documented server, on a port of its own. */
export interface Application {
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
  const servers = captureServers(t);
  const files = { 'key.pem': key, 'cert.pem': cert };
  const { store } = await runExample(t, `${lines}\nexport { store };`, files);
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
  return { port: (server.address() as AddressInfo).port, cert };
}

/** Until the test ends, every server listens on a free port instead of the given one. */
function captureServers(t: Test): readonly Server[] {
  const servers: Server[] = [];
  const listen = Reflect.get(Server.prototype, 'listen') as (...args: unknown[]) => Server;
  function listenOnFreePort(this: Server, first: unknown, ...rest: unknown[]): Server {
    const options = typeof first === 'number' ? { port: first } : first;
    const hasPort = typeof options === 'object' && options !== null && 'port' in options;
    if (hasPort) servers.push(this);
    return listen.call(this, hasPort ? { ...options, port: 0 } : first, ...rest);
  }
  t.intercept(Server.prototype, 'listen', { value: listenOnFreePort });
  return servers;
}

export type Protocol = 'HTTP/1.1' | 'HTTP/1.1 over TLS' | 'HTTP/2';

/** A request that stores a plant, unless it has other parts. */
export interface Parts {
  readonly method?: string;
  readonly path?: string;
  readonly token?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** Sends a request to an application. */
export async function send(
  { port, cert }: Application,
  { method = 'POST', path = '/plants', token = TOKEN, body = FERN, ...parts }: Parts,
  protocol: Protocol = 'HTTP/1.1',
): Promise<Received> {
  const authorization = `Bearer ${token}`;
  const headers = { authorization, 'content-type': 'application/json', ...parts.headers };
  if (protocol === 'HTTP/2') {
    const session = connectHttp2(`https://localhost:${port}`, { ca: cert });
    const stream = http2Post(session, { ':method': method, ':path': path, ...headers });
    const answer = await http2Answer(stream.end(body));
    session.destroy();
    return answer;
  }
  const request: typeof httpsRequest = protocol === 'HTTP/1.1' ? httpRequest : httpsRequest;
  const options = { host: 'localhost', port, path, method, headers, agent: false, ca: cert };
  const [response] = (await once(request(options).end(body), 'response')) as [IncomingMessage];
  const { statusCode: status = 0, headers: received } = response;
  return { status, headers: received, body: await text(response) };
}
