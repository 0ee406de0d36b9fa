#!/usr/bin/env node
import cluster from 'node:cluster';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';

import { createPlantHandler, type PlantHandler } from './http/handler.js';
import { createListener, STOPPING, type Listener } from './program/listener.js';
import { nodeFileSystem, reasonOf } from './log/file.js';
import { openPlantLog, type PlantLog } from './log/log.js';
import { repairLog, verifyLog } from './log/repair.js';
import { counted, reportToConsole as report } from './report.js';
import { makeTokenFile, readTls, readTokens } from './program/credentials.js';
import { readSettings, settingsHelp, type TokenFile } from './program/settings.js';
import { PlantStoreError } from './store.js';

const HELP = `Usage: plant-store                 store plants: POST /plants with a bearer token
       plant-store verify [FILE]   check every line of the log, and change nothing
       plant-store repair [FILE]   move damaged lines of the log to a file beside it
       plant-store --help | --version

Settings are environment variables:

${settingsHelp()}

SIGTERM and SIGINT end the program once all that is under way is answered, SIGHUP makes it read the
token file again.`;

const HOW_TO_REPAIR =
  'nothing was changed; the command verify lists all damaged lines, repair moves them aside';

/** The program's exit codes beside 0. */
const FAILED = 1;
const MISUSED = 2;

const PROGRESS_MS = 1_000;

async function serve(): Promise<void> {
  const faults: string[] = [];
  const settings = readSettings(process.env, faults);
  const { tokenFile } = settings;
  let tokens = tokenFile ? await readTokens(tokenFile, faults) : settings.tokens;
  const tls = settings.tls && (await readTls(settings.tls, faults));
  if (faults.length > 0) fail(MISUSED, faults);

  // Until plants can be sent, nothing needs to be waited for.
  let stop = (): void => process.exit(0);
  let reload = (): void => undefined;
  let signals = 0;
  const onSignal = (): void => (++signals === 1 ? stop() : process.exit(FAILED));
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
  process.on('SIGHUP', () => reload());
  // The primary of a cluster stops a worker by disconnecting it.
  const { worker } = cluster;
  worker?.on('disconnect', () => stop());
  if (worker?.isConnected() === false) stop();

  const log = await openPlantLog(settings.file, { onProgress: progressOf(settings.file) });
  if (tokenFile && tokens.length === 0) tokens = await makeTokenFile(tokenFile);
  const handler = createPlantHandler({ ...settings, tokens, store: log });
  const listener = createListener({ ...settings, handler, tls });
  const url = await listener.listen(settings.host, settings.port);

  stop = () => {
    stop = () => undefined;
    setTimeout(() => fail(FAILED, ['not all that was under way could be ended']), STOPPING.totalMs);
    void close(listener, log).then(() => process.exit(log.poisoned.aborted ? FAILED : 0));
  };
  log.poisoned.addEventListener('abort', () => stop());
  reload = () => tokenFile && void reloadTokens(tokenFile, handler);

  console.log(`plant-store listening on ${url}`);
  console.log(`log: ${log.path}`);
  console.log(`plants: ${log.size}`);
  console.log(`token: ${tokenFile?.path ?? 'from PLANT_STORE_TOKEN'}`);
}

async function verify(path: string): Promise<void> {
  const { plants, bytes, damagedLines, tornBytes } = await verifyLog(nodeFileSystem, path, {
    onDamage: ({ line, offset, reason }) => console.log(`line ${line}, byte ${offset}: ${reason}`),
    onProgress: progressOf(path),
  });
  const found = [counted(plants, 'plant'), counted(bytes, 'byte')];
  console.log(`${path}: ${found.join(', ')}, ${counted(damagedLines, 'damaged line')}`);
  if (tornBytes > 0)
    console.log(`after the last line, ${counted(tornBytes, 'byte')} of a write under way or torn`);
  process.exitCode = damagedLines === 0 ? 0 : FAILED;
}

async function repair(path: string): Promise<void> {
  const repaired = await repairLog(nodeFileSystem, path, progressOf(path));
  if (!repaired) fail(FAILED, [`${path}: no line is damaged; nothing was changed`]);
  const { plants, damagedLines, damagedPath } = repaired;
  console.log(
    `${path}: kept ${counted(plants, 'plant')}, moved ${counted(damagedLines, 'damaged line')} to ${damagedPath}`,
  );
}

async function close(listener: Listener, log: PlantLog): Promise<void> {
  await listener.stop(STOPPING.clientsMs);
  await log.close();
}

async function reloadTokens(file: TokenFile, handler: PlantHandler): Promise<void> {
  const faults: string[] = [];
  const tokens = await readTokens({ ...file, mayBeMade: false }, faults);
  for (const fault of faults) report(`${fault}; the tokens stay as they were`);
  if (faults.length > 0) return;
  handler.setTokens(tokens);
  report(`${file.path}: accepts ${counted(tokens.length, 'token')}`);
}

/** Tells every so often how much of a large log has been read. */
function progressOf(file: string): (bytes: number, totalBytes: number) => void {
  let toldAt = performance.now();
  return (bytes, totalBytes) => {
    if (performance.now() - toldAt < PROGRESS_MS) return;
    toldAt = performance.now();
    report(`reading ${file}: ${Math.floor((100 * bytes) / totalBytes)} %`);
  };
}

function fail(code: number, sentences: readonly string[]): never {
  for (const sentence of sentences) report(sentence);
  process.exit(code);
}

function version(): string {
  const packageFile = readFileSync(new URL('../package.json', import.meta.url), 'utf8');
  return (JSON.parse(packageFile) as { version: string }).version;
}

/** The log that a command is about: of the settings, only this one has to be right. */
function logPath(operand: string | undefined): string {
  if (operand !== undefined) return resolve(operand);
  const { PLANT_STORE_FILE } = process.env;
  const faults: string[] = [];
  const { file } = readSettings({ PLANT_STORE_FILE }, faults);
  if (faults.length > 0) fail(MISUSED, faults);
  return file;
}

async function run(command?: string, operand?: string, ...more: string[]): Promise<void> {
  const isAlone = operand === undefined;
  if (command === undefined) await serve();
  else if (command === 'verify' && more.length === 0) await verify(logPath(operand));
  else if (command === 'repair' && more.length === 0) await repair(logPath(operand));
  else if (command === '--help' && isAlone) console.log(HELP);
  else if (command === '--version' && isAlone) console.log(version());
  else fail(MISUSED, ['the arguments are not known; see --help']);
}

// A reader that goes away is no reason to stop.
process.stdout.on('error', () => undefined);
process.stderr.on('error', () => undefined);

run(...process.argv.slice(2)).catch((error: unknown) => {
  const isDamaged = error instanceof PlantStoreError && error.code === 'damaged';
  fail(FAILED, [reasonOf(error), ...(isDamaged ? [HOW_TO_REPAIR] : [])]);
});
