#!/usr/bin/env node
import { readFileSync } from 'node:fs';

import { createPlantHandler, type PlantHandler } from './handler.js';
import { createListener, type Listener } from './listener.js';
import { reasonOf } from './log/file.js';
import { openPlantLog, type PlantLog } from './log/log.js';
import { reportToConsole as report } from './report.js';
import { makeTokenFile, readTls, readTokens } from './secrets.js';
import { readSettings, settingsHelp, type TokenFile } from './settings.js';
import { PlantStoreError } from './store.js';

const HELP = `Usage: plant-store [--help | --version]

Stores plants: POST /plants with a bearer token. Settings are environment variables:

${settingsHelp()}

SIGTERM and SIGINT end the program once all that is under way is answered, SIGHUP makes it read the
token file again.`;

/** The program's exit codes beside 0. */
const FAILED = 1;
const MISUSED = 2;

/** How long stopping may take in all, and how much of it is for the clients, in ms. */
const STOP_MS = 10_000;
const ANSWER_MS = 8_000;
const PROGRESS_MS = 1_000;

async function serve(): Promise<void> {
  const faults: string[] = [];
  const settings = readSettings(process.env, faults);
  const { tokenFile } = settings;
  let tokens = tokenFile ? await readTokens(tokenFile, faults) : settings.tokens;
  const tls = settings.tls && (await readTls(settings.tls, faults));
  if (faults.length > 0) fail(MISUSED, faults);

  // Until plants can be sent, nothing needs to be waited for.
  let stop = (code: number): void => process.exit(code);
  let reload = (): void => undefined;
  process.on('SIGTERM', () => stop(0));
  process.on('SIGINT', () => stop(0));
  process.on('SIGHUP', () => reload());

  const log = await openPlantLog(settings.file, { onProgress: progressOf(settings.file) });
  if (tokenFile && tokens.length === 0) tokens = await makeTokenFile(tokenFile);
  const handler = createPlantHandler({ ...settings, tokens, store: log });
  const listener = createListener({ ...settings, handler, tls });
  const url = await listener.listen(settings.host, settings.port);

  stop = (code) => {
    stop = () => process.exit(FAILED);
    setTimeout(() => fail(FAILED, ['not all that was under way could be ended']), STOP_MS);
    void close(listener, log).then(() => process.exit(code));
  };
  log.poisoned.addEventListener('abort', () => stop(FAILED));
  reload = () => tokenFile && void reloadTokens(tokenFile, handler);

  console.log(`plant-store listening on ${url}`);
  console.log(`log: ${log.path}`);
  console.log(`plants: ${log.size}`);
  console.log(`token: ${tokenFile?.path ?? 'from PLANT_STORE_TOKEN'}`);
}

async function close(listener: Listener, log: PlantLog): Promise<void> {
  await listener.stop(ANSWER_MS);
  await log.close();
}

async function reloadTokens(file: TokenFile, handler: PlantHandler): Promise<void> {
  const faults: string[] = [];
  const tokens = await readTokens({ ...file, mayBeMade: false }, faults);
  if (faults.length === 0) handler.setTokens(tokens);
  else faults.forEach((fault) => report(`${fault}; the tokens stay as they were`));
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

// A reader that goes away is no reason to stop.
process.stdout.on('error', () => undefined);
process.stderr.on('error', () => undefined);

const [command, ...more] = process.argv.slice(2);
if (command === '--help' && more.length === 0) console.log(HELP);
else if (command === '--version' && more.length === 0) console.log(version());
else if (command !== undefined) fail(MISUSED, ['the arguments are not known; see --help']);
else
  serve().catch((error: unknown) => {
    fail(FAILED, [error instanceof PlantStoreError ? error.message : reasonOf(error)]);
  });
