import { fileURLToPath } from 'node:url';

import type { Test } from 'tap';

import { launch, type Process } from '../system/program.js';

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
