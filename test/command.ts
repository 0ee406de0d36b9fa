import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const execute = promisify(execFile);

/** Node as it is without what tap and c8 make every child process load. */
export const PLAIN = ['env', '-u', 'NODE_OPTIONS', '-u', 'NODE_V8_COVERAGE'] as const;

/** Runs a command and resolves to what it writes to stdout. Rejects, with all of it, if it fails. */
export async function run(cwd: string, command: string, ...args: string[]): Promise<string> {
  const [env, ...options] = PLAIN;
  try {
    const { stdout } = await execute(env, [...options, command, ...args], { cwd });
    return stdout;
  } catch (error) {
    const { stdout, stderr } = error as { stdout: string; stderr: string };
    throw new Error(`${command} ${args.join(' ')}\n${stdout}${stderr}`);
  }
}
