import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const execute = promisify(execFile);

/** Options of env(1) that remove the variables with which npx and Node's test runner change every child. */
const VARIABLES = ['npm_config_package', 'NODE_TEST_CONTEXT'];
const PLAIN = VARIABLES.flatMap((name) => ['-u', name]);

/** Runs a command to its end and resolves to its stdout; rejects with all its output if it fails. */
export async function run(cwd: string, command: string, ...args: string[]): Promise<string> {
  try {
    const { stdout } = await execute('env', [...PLAIN, command, ...args], {
      cwd,
      maxBuffer: Infinity,
    });
    return stdout;
  } catch (error) {
    const { stdout, stderr } = error as { stdout: string; stderr: string };
    throw new Error(`${command} ${args.join(' ')}\n${stdout}${stderr}`);
  }
}
