import cluster from 'node:cluster';

import { createPlantHandler, type PlantHandler } from '../http/handler.js';
import { openPlantLog, type PlantLog } from '../log/log.js';
import { pluralize, reportToConsole as report } from '../report.js';
import { createTokenFile, readTls, readTokens } from './credentials.js';
import { EXIT, fail, type ExitCode } from './exit.js';
import { createListener, STOPPING, type Listener } from './listener.js';
import { reportProgress } from './progress.js';
import { readSettings, type TokenFile } from './settings.js';

/**
 * Serves plants as the environment says. Resolves to the exit code: once a signal has stopped the
 * program and the requests in flight are answered, or once the log is poisoned.
 */
export async function serve(): Promise<ExitCode> {
  const faults: string[] = [];
  const settings = readSettings(process.env, faults);
  const { tokenFile } = settings;
  let tokens = tokenFile ? await readTokens(tokenFile, faults) : settings.tokens;
  const tls = settings.tls && (await readTls(settings.tls, faults));
  if (faults.length > 0) return fail(EXIT.usage, ...faults);

  const signals = handleSignals();
  const log = await openPlantLog(settings.file, { onProgress: reportProgress(settings.file) });
  if (tokenFile && tokens.length === 0) tokens = await createTokenFile(tokenFile);
  const handler = createPlantHandler({ ...settings, tokens, store: log });
  const listener = createListener({ ...settings, handler, tls });
  const url = await listener.listen(settings.host, settings.port);

  console.log(`plant-store listening on ${url}`);
  console.log(`log: ${log.path}`);
  console.log(`plants: ${log.size}`);
  console.log(`token: ${tokenFile?.path ?? 'from PLANT_STORE_TOKEN'}`);

  await new Promise<void>((resolve) => {
    signals.onReload = () => tokenFile && void reloadTokens(tokenFile, handler);
    signals.onStop = resolve;
    log.poisoned.addEventListener('abort', () => resolve());
  });
  signals.onStop = () => undefined;
  return stop(listener, log);
}

/** What the program does on signals. They are handled from the start, before there is a server. */
interface SignalHandlers {
  /** Called on the first SIGTERM or SIGINT, and when the primary of a cluster disconnects. */
  onStop: () => void;
  /** Called on SIGHUP. */
  onReload: () => void;
}

function handleSignals(): SignalHandlers {
  const handlers: SignalHandlers = {
    // As long as no plant can be sent, there is nothing to wait for.
    onStop: () => process.exit(EXIT.done),
    onReload: () => undefined,
  };
  let signals = 0;
  const onSignal = (): void => (++signals === 1 ? handlers.onStop() : process.exit(EXIT.failed));
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
  process.on('SIGHUP', () => handlers.onReload());
  // The primary of a cluster stops a worker by disconnecting it.
  const { worker } = cluster;
  worker?.on('disconnect', () => handlers.onStop());
  if (worker?.isConnected() === false) handlers.onStop();
  return handlers;
}

/** Responds to the requests in flight and closes the log, in a bounded time. */
function stop(listener: Listener, log: PlantLog): Promise<ExitCode> {
  return new Promise((resolve, reject) => {
    setTimeout(
      () => resolve(fail(EXIT.failed, 'not all that was under way could be ended')),
      STOPPING.totalMs,
    );
    listener
      .stop(STOPPING.clientsMs)
      .then(() => log.close())
      .then(() => resolve(log.poisoned.aborted ? EXIT.failed : EXIT.done), reject);
  });
}

async function reloadTokens(file: TokenFile, handler: PlantHandler): Promise<void> {
  const faults: string[] = [];
  const tokens = await readTokens({ ...file, createIfMissing: false }, faults);
  for (const fault of faults) report(`${fault}; the tokens stay as they were`);
  if (faults.length > 0) return;
  handler.setTokens(tokens);
  report(`${file.path}: accepts ${pluralize(tokens.length, 'token')}`);
}
