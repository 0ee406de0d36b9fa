import { resolve } from 'node:path';

import { openPlantLog } from '../log/log.js';
import { PlantStoreError } from '../store.js';
import type { ExitCode } from './exit.js';
import { LOG_SETTINGS, settingsHelp } from './environment.js';
import { commandTyped, main } from './main.js';
import { reportProgress } from './progress.js';
import { repair } from './repair.js';
import { serve } from './serve.js';
import { readLogPath, readLogSettings } from './settings.js';
import { verify } from './verify.js';

const HELP = `Usage: plant-store                 store plants: POST /plants with a bearer token
       plant-store verify [FILE]   check every line of the log, and change nothing
       plant-store repair [FILE]   move damaged lines of the log to a file beside it
       plant-store --help | --version

Settings are environment variables:

${settingsHelp(LOG_SETTINGS)}

Without a token, a random one is written to the file token beside the log.

SIGTERM and SIGINT stop the program once the requests in flight are answered. SIGHUP makes it read
the token file, the certificate and its key again, but stops it if its input is a terminal.`;

/** Runs the program that keeps plants in a log. */
export function logProgram(): void {
  main(HELP, commandTyped(), (command, file, ...more) => {
    if (more.length > 0) return undefined;
    if (command === undefined) return serveLog();
    if (command === 'verify') return withLog(file, verify);
    if (command === 'repair') return withLog(file, repair);
    return undefined;
  });
}

async function serveLog(): Promise<ExitCode> {
  const settings = await readLogSettings(process.env);
  return serve(settings, async (stop) => {
    const onProgress = reportProgress(settings.file, stop);
    const log = await ofSetting(openPlantLog(settings.file, { onProgress }));
    const lines = [`log: ${log.path}`, `plants: ${log.size}`];
    return { store: log, lines, log, poisoned: log.poisoned };
  });
}

/** Runs a command on the given log, or else on the configured one. */
async function withLog(
  file: string | undefined,
  command: (path: string) => Promise<ExitCode>,
): Promise<ExitCode> {
  if (file !== undefined) return command(resolve(file));
  return ofSetting(command(readLogPath(process.env)));
}

/** Names the setting in the message if the file that it names cannot be used. */
async function ofSetting<Result>(result: Promise<Result>): Promise<Result> {
  try {
    return await result;
  } catch (cause) {
    if (!(cause instanceof PlantStoreError && cause.code === 'unavailable')) throw cause;
    throw new Error(`PLANT_STORE_FILE: ${cause.message}`, { cause });
  }
}
