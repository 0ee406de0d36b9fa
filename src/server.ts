#!/usr/bin/env node
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';

import { EXIT, fail, type ExitCode } from './program/exit.js';
import { repair } from './program/repair.js';
import { serve } from './program/serve.js';
import { readSettings, settingsHelp } from './program/settings.js';
import { verify } from './program/verify.js';
import { PlantStoreError } from './store.js';
import { reasonOf } from './system-error.js';

const HELP = `Usage: plant-store                 store plants: POST /plants with a bearer token
       plant-store verify [FILE]   check every line of the log, and change nothing
       plant-store repair [FILE]   move damaged lines of the log to a file beside it
       plant-store --help | --version

Settings are environment variables:

${settingsHelp()}

SIGTERM and SIGINT stop the program once the requests in flight are answered. SIGHUP makes it read
the token file again.`;

const HOW_TO_REPAIR =
  'nothing was changed; the command verify lists all damaged lines, repair moves them aside';

async function run(command?: string, operand?: string, ...more: string[]): Promise<ExitCode> {
  const isAlone = operand === undefined;
  if (command === undefined) return serve();
  if (command === 'verify' && more.length === 0) return withLog(operand, verify);
  if (command === 'repair' && more.length === 0) return withLog(operand, repair);
  if (command === '--help' && isAlone) return print(HELP);
  if (command === '--version' && isAlone) return print(version());
  return fail(EXIT.usage, 'the arguments are not known; see --help');
}

/** Runs a command on the log named after it, or else on the configured one. */
function withLog(
  operand: string | undefined,
  command: (path: string) => Promise<ExitCode>,
): ExitCode | Promise<ExitCode> {
  if (operand !== undefined) return command(resolve(operand));
  // Of the settings, only this one has to be valid.
  const { PLANT_STORE_FILE } = process.env;
  const faults: string[] = [];
  const { file } = readSettings({ PLANT_STORE_FILE }, faults);
  return faults.length > 0 ? fail(EXIT.usage, ...faults) : command(file);
}

function print(text: string): ExitCode {
  console.log(text);
  return EXIT.done;
}

function version(): string {
  const packageFile = readFileSync(new URL('../package.json', import.meta.url), 'utf8');
  return (JSON.parse(packageFile) as { version: string }).version;
}

// A reader that closes its end of a pipe is no reason to stop.
process.stdout.on('error', () => undefined);
process.stderr.on('error', () => undefined);

void run(...process.argv.slice(2))
  .catch((error: unknown) => {
    const isDamaged = error instanceof PlantStoreError && error.code === 'damaged';
    return fail(EXIT.failed, reasonOf(error), ...(isDamaged ? [HOW_TO_REPAIR] : []));
  })
  .then((code) => process.exit(code));
