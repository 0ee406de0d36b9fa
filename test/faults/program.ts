import { spawn } from 'node:child_process';
import { strict as assert } from 'node:assert';
import { once } from 'node:events';
import { resolve } from 'node:path';
import { createInterface } from 'node:readline';

export const TOKEN = 'a-token';
export const PROGRAM = resolve('dist/server.js');

export interface ProgramOptions {
  /** The log that the program is given. */
  readonly log: string;
  /** The arguments, in place of those that make it serve. */
  readonly command?: readonly string[];
  /** The command that runs the program, with all its arguments but the program. */
  readonly under?: readonly string[];
  /** A program other than the built one. */
  readonly script?: string;
  readonly environment?: NodeJS.ProcessEnv;
}

export interface Program {
  readonly pid: number;
  /** Where it listens; `undefined` if it ended before it did. */
  readonly port: Promise<number | undefined>;
  /** Resolves once it has ended, and whatever traces it, too. */
  readonly ended: Promise<Ended>;
  kill(signal: NodeJS.Signals): void;
}

export interface Ended {
  /** How it ended: an exit code, or the signal that killed it. */
  readonly how: number | NodeJS.Signals;
  readonly stdout: string;
  readonly stderr: string;
}

const killers = new Set<() => void>();
process.on('exit', () => killers.forEach((kill) => kill()));

/** Runs the program, by itself or under a command. */
export function run({
  log,
  command = [],
  under = [],
  script = PROGRAM,
  environment,
}: ProgramOptions): Program {
  const [file = '', ...args] = [...under, process.execPath, script, ...command];
  const child = spawn(file, args, {
    env: {
      ...process.env,
      NODE_OPTIONS: '',
      // One thread for all operations on files: strace counts the calls of each thread.
      UV_THREADPOOL_SIZE: '1',
      UV_USE_IO_URING: '0',
      PLANT_STORE_PORT: '0',
      PLANT_STORE_FILE: log,
      PLANT_STORE_TOKEN: TOKEN,
      ...environment,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const kill = (): void => void child.kill('SIGKILL');
  killers.add(kill);
  const written = { stdout: '', stderr: '' };
  child.stderr.on('data', (text) => (written.stderr += String(text)));
  const ended = once(child, 'close').then(([code, signal]): Ended => {
    killers.delete(kill);
    return { how: (code ?? signal) as Ended['how'], ...written };
  });
  const port = new Promise<number | undefined>((settle) => {
    createInterface(child.stdout)
      .on('line', (line) => {
        written.stdout += `${line}\n`;
        const url = /^plant-store listening on (.+)$/.exec(line)?.[1];
        if (url !== undefined) settle(Number(new URL(url).port));
      })
      .on('close', () => settle(undefined));
  });
  return { pid: child.pid as number, port, ended, kill: (signal) => child.kill(signal) };
}

/** A program that serves. */
export interface Server extends Program {
  readonly serves: number;
}

export async function serve(options: ProgramOptions): Promise<Server> {
  const program = run(options);
  const serves = await program.port;
  if (serves === undefined) assert.fail(`it does not start: ${(await program.ended).stderr}`);
  return { ...program, serves };
}

/** Tells a program to stop, and waits until it has ended with code 0. */
export async function stop(program: Program): Promise<Ended> {
  program.kill('SIGTERM');
  const ended = await program.ended;
  assert.equal(ended.how, 0, `it ends with 0: ${ended.stderr}`);
  return ended;
}
