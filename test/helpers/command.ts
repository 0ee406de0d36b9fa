import { execFile, type ExecFileException } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

import type { Test } from 'tap';

const executeFile = promisify(execFile);

/**
 * Runs a command to its end, and resolves to its stdout. If the command fails, rejects with an
 * error that contains the command, its status and all its output.
 */
export async function execute(cwd: string, command: string, ...args: string[]): Promise<string> {
  // `env -u` removes a variable that npx sets, and that would change every npx that a test runs.
  const line = ['env', '-u', 'npm_config_package', command, ...args];
  try {
    return (await executeFile('env', line.slice(1), { cwd, maxBuffer: Infinity })).stdout;
  } catch (error) {
    const { code, signal, stdout, stderr } = error as ExecFileException;
    // tap prints these members, but not the message of an error whose code is a number.
    const command = line.slice(3).join(' ');
    throw Object.assign(new Error('a command failed'), {
      command,
      status: code ?? signal,
      stdout,
      stderr,
    });
  }
}

/** The scripts that npm runs, or names in a warning, when it installs a package. */
export const INSTALL_SCRIPTS = ['preinstall', 'install', 'postinstall', 'prepare'] as const;

/**
 * A folder in which neither Node nor npm finds what the repository has installed. It is removed
 * when the test ends.
 */
export function folderOutside(t: Pick<Test, 'teardown'>): string {
  const folder = mkdtempSync(join(tmpdir(), 'plant-store-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  return folder;
}
