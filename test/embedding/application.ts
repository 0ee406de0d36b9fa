import { Server as HttpServer } from 'node:http';
import { Server, type AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';

import type { Test } from 'tap';

import { launch, type Process } from '../helpers/program.js';

/**
 * A preload that lets a server listen on a free port instead of the given one, and prints the port.
 */
const ON_FREE_PORT = `
import { Server } from 'node:http';
const { listen } = Server.prototype;
Server.prototype.listen = function (_port, onListening) {
  this.once('listening', () => console.log(this.address().port));
  return listen.call(this, 0, '127.0.0.1', onListening);
};`;

/** An application whose server is listening. */
export interface Application extends Process {
  readonly port: number;
  /** The working directory of the application. */
  readonly cwd: string;
}

/** The path of a program of `test/embedding/examples/`. */
export const example = (name: string): string =>
  fileURLToPath(new URL(`examples/${name}.js`, import.meta.url));

/**
 * Starts a program of `test/embedding/examples/` in a folder of the test. `more` is the source of
 * another preload.
 */
export async function startApplication(t: Test, name: string, more = ''): Promise<Application> {
  const cwd = t.testdir();
  const program = launch(t, { cwd, script: example(name), preload: ON_FREE_PORT + more });
  const [port] = await program.says('stdout', /\d+(?=\n)/);
  return Object.assign(program, { port: Number(port), cwd });
}

/**
 * Starts a program of `test/embedding/examples/` in this process, which may end before the program.
 * All programs that import `handler.ts` share one log, in the working directory. Resolves to the
 * port.
 */
export async function startApplicationHere(t: Test, name: string): Promise<number> {
  const listening = new Promise<Server>((resolve) => {
    t.intercept(HttpServer.prototype, 'listen', {
      value(this: Server, _port: unknown, onListening: () => void): Server {
        this.once('listening', () => resolve(this)).unref();
        return Server.prototype.listen.call(this, { port: 0, host: '127.0.0.1' }, onListening);
      },
    });
  });
  await import(example(name));
  return ((await listening).address() as AddressInfo).port;
}
