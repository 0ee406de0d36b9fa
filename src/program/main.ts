import { basename, relative } from 'node:path';

import { PlantStoreError } from '../store.js';
import { reasonOf } from '../system-error.js';
import { EXIT, exit, fail, outputTaken, type ExitCode } from './exit.js';
import { SettingsError } from './settings-error.js';

/** The version in package.json, which is not there when the program is bundled into one file. */
const VERSION = '1.0.0';

/** Runs a command, or returns `undefined` if there is no such command. */
export type Run = (
  command?: string,
  file?: string,
  ...more: readonly string[]
) => ExitCode | Promise<ExitCode> | undefined;

/**
 * Runs a program with the arguments of the process, then ends the process. `logCommand` is what an
 * operator types before `verify` and `repair`.
 */
export function main(help: string, logCommand: string, run: Run): void {
  // The program continues if the reader of a pipe closes it (EPIPE).
  process.stdout.on('error', () => undefined);
  process.stderr.on('error', () => undefined);
  void dispatch(help, run)
    .catch((error: unknown) => {
      if (error instanceof SettingsError) return fail(EXIT.usage, ...error.faults);
      const messages = [reasonOf(error)];
      if (error instanceof PlantStoreError && error.code === 'damaged')
        messages.push(
          `the log was not changed; ${logCommand} verify lists its damaged lines, ${logCommand} repair moves them aside`,
        );
      return fail(EXIT.failed, ...messages);
    })
    .then(async (code) => {
      await outputTaken();
      exit(code);
    });
}

/** What an operator has typed to run this program: `plant-store` or `node dist/server.js`. */
export function commandTyped(): string {
  const [, script = ''] = process.argv;
  return script.endsWith('.js') ? `node ${relative(process.cwd(), script)}` : basename(script);
}

async function dispatch(help: string, run: Run): Promise<ExitCode> {
  const [command, ...operands] = process.argv.slice(2);
  if (['--help', '-h', 'help'].includes(command ?? '') && operands.length === 0) return print(help);
  if (command === '--version' && operands.length === 0) return print(VERSION);
  const isOption = operands.some((operand) => operand.startsWith('-'));
  const code = isOption ? undefined : await run(command, ...operands);
  return code ?? fail(EXIT.usage, 'unknown arguments; see --help');
}

function print(text: string): ExitCode {
  console.log(text);
  return EXIT.done;
}
