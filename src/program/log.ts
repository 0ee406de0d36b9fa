import { resolve } from 'node:path';

import { openPlantLog } from '../log/log.js';
import type { ExitCode } from './exit.js';
import { LOG_SETTINGS, settingsHelp } from './environment.js';
import { checkReadable, importPlants } from './import.js';
import { main } from './main.js';
import { reportProgress } from './progress.js';
import { repair } from './repair.js';
import { serve } from './serve.js';
import { readLogPath, readLogSettings } from './settings.js';
import { ofSetting } from './settings-error.js';
import type { Shutdown } from './signals.js';
import { withOpenLog } from './transfer.js';
import { verify } from './verify.js';

const HELP = `Usage: plant-store                 store plants: POST /plants with a bearer token
       plant-store verify [FILE]   check every line of the log, and change nothing
       plant-store repair [FILE]   write damaged lines again, or move them to a file beside it
       plant-store import FILE     add plants, one JSON object a line; - is stdin
       plant-store --help | --version

Settings are environment variables:

${settingsHelp(LOG_SETTINGS)}

Without a token, a random one is written to the file token beside the log.`;

/** Runs the program that keeps plants in a log. */
export function logProgram(shutdown: Shutdown): Promise<void> {
  const [, script = ''] = process.argv;
  return main(shutdown, HELP, script, (command, file, ...more) => {
    if (more.length > 0) return undefined;
    if (command === undefined) return serveLog(shutdown);
    const { requested } = shutdown;
    if (command === 'import' && file !== undefined) return importToLog(file, requested);
    if (command === 'verify') return withLog(file, (path) => verify(path, requested));
    if (command === 'repair') return withLog(file, (path) => repair(path, requested));
    return undefined;
  });
}

async function serveLog(shutdown: Shutdown): Promise<ExitCode> {
  const settings = await readLogSettings(process.env);
  return serve(settings, shutdown, async () => {
    const onProgress = reportProgress(settings.file, shutdown.requested);
    const log = await ofSetting('PLANT_STORE_FILE', openPlantLog(settings.file, { onProgress }));
    const lines = [`log: ${log.path}`, `plants: ${log.size}`];
    return { store: log, lines, log, check: () => log.check(), poisoned: log.poisoned };
  });
}

async function importToLog(file: string, stop: AbortSignal): Promise<ExitCode> {
  await checkReadable(file);
  const imported = withOpenLog(readLogPath(process.env), stop, (log) =>
    importPlants(file, log, stop, log.plants()),
  );
  return ofSetting('PLANT_STORE_FILE', imported);
}

/** Runs a command on the given log, or else on the configured one. */
async function withLog(
  file: string | undefined,
  command: (path: string) => Promise<ExitCode>,
): Promise<ExitCode> {
  if (file !== undefined) return command(resolve(file));
  return ofSetting('PLANT_STORE_FILE', command(readLogPath(process.env)));
}
