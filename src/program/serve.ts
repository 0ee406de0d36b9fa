import cluster from 'node:cluster';

import { createPlantHandler, type PlantHandler } from '../http/handler.js';
import { pluralize, reportToConsole as report } from '../report.js';
import type { PlantStore } from '../store.js';
import { createTokenFile, readTls, readTokens } from './credentials.js';
import { EXIT, fail, type ExitCode } from './exit.js';
import { createListener, STOPPING, type Listener } from './listener.js';
import type { ServerSettings, TokenFile } from './settings.js';

/** A store that a program serves. */
export interface ServedStore {
  readonly store: PlantStore;
  /** Lines about the store, which are printed at start. */
  readonly lines: readonly string[];
  /** Aborted once the store refuses all plants. */
  readonly poisoned?: AbortSignal;
}

/**
 * Serves a store, if there are no faults in the settings. Resolves to the exit code: once a signal has
 * stopped the program and the requests in flight are answered, or once the store is poisoned.
 */
export async function serve(
  settings: ServerSettings,
  faults: string[],
  open: () => Promise<ServedStore>,
): Promise<ExitCode> {
  const { tokenFile } = settings;
  let tokens = tokenFile ? await readTokens(tokenFile, faults) : settings.tokens;
  const tls = settings.tls && (await readTls(settings.tls, faults));
  if (faults.length > 0) return fail(EXIT.usage, ...faults);

  const signals = handleSignals();
  const served = await open();
  if (tokenFile && tokens.length === 0) {
    await createTokenFile(tokenFile);
    tokens = await readTokens({ ...tokenFile, createIfMissing: false }, faults);
    if (faults.length > 0) throw new Error(faults.join('; '));
  }
  const handler = createPlantHandler({ ...settings, tokens, store: served.store });
  const listener = createListener({ ...settings, handler, tls });
  const url = await listener.listen(settings.host, settings.port);

  console.log(`plant-store listening on ${url}`);
  for (const line of served.lines) console.log(line);
  console.log(`token: ${tokenFile?.path ?? 'from PLANT_STORE_TOKEN'}`);

  await new Promise<void>((resolve) => {
    let reloaded = Promise.resolve();
    signals.onReload = () => {
      if (tokenFile) reloaded = reloaded.then(() => reloadTokens(tokenFile, handler));
    };
    if (signals.isReloadDue) signals.onReload();
    signals.onStop = resolve;
    served.poisoned?.addEventListener('abort', () => resolve());
  });
  signals.onStop = () => undefined;
  return stop(listener, served);
}

/** The handlers of signals, which are installed first, before there is a server. */
interface SignalHandlers {
  /** Called on the first SIGTERM or SIGINT, and when the primary of a cluster disconnects. */
  onStop: () => void;
  /** Called on SIGHUP. */
  onReload: () => void;
  /** Whether SIGHUP came before there was a server. */
  isReloadDue: boolean;
}

function handleSignals(): SignalHandlers {
  const handlers: SignalHandlers = {
    // As long as no plant can be sent, there is nothing to wait for.
    onStop: () => process.exit(EXIT.done),
    onReload: () => {
      handlers.isReloadDue = true;
    },
    isReloadDue: false,
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

/** Responds to the requests in flight and closes the store, within {@link STOPPING}`.totalMs`. */
function stop(listener: Listener, { store, poisoned }: ServedStore): Promise<ExitCode> {
  return new Promise((resolve, reject) => {
    setTimeout(
      () => resolve(fail(EXIT.failed, 'the shutdown timed out; not all work was completed')),
      STOPPING.totalMs,
    );
    listener
      .stop(STOPPING.clientsMs)
      .then(() => store.close())
      .then(() => resolve(poisoned?.aborted ? EXIT.failed : EXIT.done), reject);
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
