import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';

import type { Test } from 'tap';

const execute = promisify(execFile);

/** Without what tap, c8 and npx tell every program that a test starts. */
const PLAIN = ['NODE_OPTIONS', 'NODE_V8_COVERAGE', 'npm_config_package'].flatMap((name) => [
  '-u',
  name,
]);

/** Runs a command and resolves to what it writes to stdout. Rejects, with all of it, if it fails. */
export async function run(cwd: string, command: string, ...args: string[]): Promise<string> {
  try {
    const { stdout } = await execute('env', [...PLAIN, command, ...args], { cwd });
    return stdout;
  } catch (error) {
    const { stdout, stderr } = error as { stdout: string; stderr: string };
    throw new Error(`${command} ${args.join(' ')}\n${stdout}${stderr}`);
  }
}

/** A command that serves plants. */
export interface Serving {
  readonly url: string;
  /** Stops it, and resolves to its exit code. */
  readonly stop: () => Promise<unknown>;
}

/**
 * Starts a command that runs the program in the end, in the same process. Rejects, with what it
 * wrote to stderr, if it ends before it listens.
 */
export async function startServing(
  t: Test,
  cwd: string,
  env: Readonly<Record<string, string>>,
  command: string,
  ...args: string[]
): Promise<Serving> {
  const child = spawn('env', [...PLAIN, command, ...args], {
    cwd,
    env: { ...process.env, PLANT_STORE_PORT: '0', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const closed = once(child, 'close');
  t.teardown(async () => {
    child.kill('SIGKILL');
    await closed;
  });
  const stderr = text(child.stderr);
  const lines = createInterface({ input: child.stdout });
  const [line = ''] = (await Promise.race([once(lines, 'line'), closed])) as [unknown];
  const [, url] = /^plant-store listening on (http\S+)$/.exec(String(line)) ?? [];
  if (url === undefined) throw new Error(`${String(line)}\n${await stderr}`);
  return {
    url,
    async stop() {
      child.kill('SIGTERM');
      const [code] = (await closed) as unknown[];
      return code;
    },
  };
}
