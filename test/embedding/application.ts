import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { connect as connectHttp2, constants, type IncomingHttpHeaders } from 'node:http2';
import { request as httpsRequest } from 'node:https';
import { Server, type AddressInfo, type Socket } from 'node:net';
import type { Readable, Writable } from 'node:stream';
import { text } from 'node:stream/consumers';

import type { Test } from 'tap';

import type { PlantStore } from '../../dist/index.js';
import { selfSigned } from '../certificate.js';
import type { Received } from '../conformance.js';
import { runExample } from '../example.js';

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
  application: Application,
  protocol: Protocol,
  message: Message,
): Promise<Received> {
  const exchange = begin(application, protocol, message);
  exchange.request.end(message.body);
  const answer = await exchange.answer;
  exchange.leave();
  return answer;
}

/** Hangs up when an application has got one half of a plant, and waits until it has noticed. */
export async function hangUp(
  application: Application,
  protocol: Protocol,
  message: Message,
): Promise<void> {
  const requested = once(application.server, 'request');
  const exchange = begin(application, protocol, message);
  exchange.answer.catch(() => undefined);
  exchange.request.write(message.body.slice(0, message.body.length / 2));
  const [received] = (await requested) as [Readable];
  const closed = new Promise((resolve) => received.once('close', resolve));
  exchange.leave();
  await closed;
}

interface Exchange {
  readonly request: Writable;
  readonly answer: Promise<Received>;
  /** Closes the connection. */
  leave(): void;
}

function begin({ port, cert }: Application, protocol: Protocol, message: Message): Exchange {
  const { path } = message;
  const headers = {
    authorization: `Bearer ${message.token}`,
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(message.body),
  };
  if (protocol !== 'HTTP/2') {
    const options = { host: 'localhost', port, path, method: 'POST', headers, agent: false };
    const request =
      protocol === 'HTTP/1.1' ? httpRequest(options) : httpsRequest({ ...options, ca: cert });
    const answer = once(request, 'response').then(async ([response]) => {
      const { statusCode = 0, headers } = response as IncomingMessage;
      return { status: statusCode, headers, body: await text(response as IncomingMessage) };
    });
    return { request, answer, leave: () => request.destroy() };
  }
  const session = connectHttp2(`https://localhost:${port}`, { ca: cert });
  const { HTTP2_HEADER_METHOD, HTTP2_HEADER_PATH } = constants;
  const request = session.request({
    [HTTP2_HEADER_METHOD]: 'POST',
    [HTTP2_HEADER_PATH]: path,
    ...headers,
  });
  const answer = once(request, 'response').then(async ([headers]) => {
    const { ':status': status, ...others } = headers as IncomingHttpHeaders & { ':status': number };
    return { status, headers: others, body: await text(request) };
  });
  return { request, answer, leave: () => session.destroy() };
}
