import { fileURLToPath } from 'node:url';

import type { Test } from 'tap';

import { FERN } from '../client.js';
import type { Received } from '../conformance.js';
import { launch, type Process } from '../system/program.js';

/** The token that the documented handler accepts. */
export const TOKEN = 'a-secret-token';

/** A preload with which a server listens on a free port instead of the given one, and prints it. */
const ON_FREE_PORT = `
import { Server } from 'node:net';
const { listen } = Server.prototype;
Server.prototype.listen = function (first, ...rest) {
  const options = typeof first === 'number' ? { port: first } : first;
  if (options.port === undefined) return listen.call(this, first, ...rest);
  this.once('listening', () => console.log(this.address().port));
  return listen.call(this, { ...options, host: '127.0.0.1', port: 0 }, ...rest);
};`;

/** An application that listens. */
export interface Application extends Process {
  readonly port: number;
  /** Its working directory. */
  readonly cwd: string;
}

/** The path of a program of `test/examples/`. */
export const example = (name: string): string =>
  fileURLToPath(new URL(`../examples/${name}.js`, import.meta.url));

/** Starts a program of `test/examples/`, in a folder of the test's own. */
export async function startApplication(t: Test, name: string): Promise<Application> {
  const cwd = t.testdir();
  const program = launch(t, { cwd, script: example(name), preload: ON_FREE_PORT });
  const [port] = await program.says('stdout', /\d+(?=\n)/);
  return Object.assign(program, { port: Number(port), cwd });
}

/** A request that stores a plant, unless it has other parts. */
export interface Parts {
  readonly method?: string;
  readonly path?: string;
  readonly token?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** Sends a request to an application. */
export async function send({ port }: Application, parts: Parts = {}): Promise<Received> {
  const { method = 'POST', path = '/plants', token = TOKEN, body = FERN } = parts;
  const response = await fetch(`http://127.0.0.1:${port}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${token}`,
      'content-type': 'application/json',
      ...parts.headers,
    },
    ...(method === 'POST' && { body }),
  });
  const { status, headers } = response;
  return { status, headers: Object.fromEntries(headers), body: await response.text() };
}
