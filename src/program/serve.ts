import { createPlantHandler, type PlantHandler } from '../http/handler.js';
import { pluralize, reportToConsole as report } from '../report.js';
import type { PlantStore } from '../store.js';
import { createTokenFile, readTls, readTokens } from './credentials.js';
import { EXIT, exitWithin, fail, type ExitCode } from './exit.js';
import { createListener, STOPPING } from './listener.js';
import type { ServerSettings, TokenFile } from './settings.js';
import { aborted, handleSignals } from './signals.js';

/** A store that a program serves. */
export interface ServedStore {
  readonly store: PlantStore;
  /** Lines about the store, which are printed at start. */
  readonly lines: readonly string[];
  /** Aborted once the store refuses all plants. */
  readonly poisoned?: AbortSignal;
}

/**
 * Serves a store, if there are no faults in the settings. `open` may fail once its signal is aborted.
 * Resolves to the exit code: once a signal has stopped the program and the requests in flight are
 * answered, or once the store is poisoned. {@link STOPPING}`.totalMs` after that began, the process ends.
 */
export async function serve(
  settings: ServerSettings,
  faults: string[],
  open: (stop: AbortSignal) => Promise<ServedStore>,
): Promise<ExitCode> {
  const { tokenFile } = settings;
  let tokens = tokenFile ? await readTokens(tokenFile, faults) : settings.tokens;
  const tls = settings.tls && (await readTls(settings.tls, faults));
  if (faults.length > 0) return fail(EXIT.usage, ...faults);

  const signals = handleSignals();
  // As long as no plant can be sent, there is nothing to wait for.
  const served = await Promise.race([open(signals.stop), aborted(signals.stop)]);
  if (!served) return EXIT.done;
  if (tokenFile && tokens.length === 0) {
    await createTokenFile(tokenFile);
    tokens = await readTokens({ ...tokenFile, createIfMissing: false }, faults);
    if (faults.length > 0) throw new Error(faults.join('; '));
  }
  const { store, lines, poisoned } = served;
  const handler = createPlantHandler({ ...settings, tokens, store });
  const listener = createListener({ ...settings, handler, tls });
  const url = await listener.listen(settings.host, settings.port);

  console.log(`plant-store listening on ${url}`);
  for (const line of lines) console.log(line);
  console.log(`token: ${tokenFile?.path ?? 'from PLANT_STORE_TOKEN'}`);

  let reloaded = Promise.resolve();
  signals.onReload(() => {
    if (tokenFile) reloaded = reloaded.then(() => reloadTokens(tokenFile, handler));
  });
  await aborted(AbortSignal.any([signals.stop, ...(poisoned ? [poisoned] : [])]));
  exitWithin(STOPPING.totalMs);
  await listener.stop(STOPPING.clientsMs);
  await store.close();
  return poisoned?.aborted ? EXIT.failed : EXIT.done;
}

async function reloadTokens(file: TokenFile, handler: PlantHandler): Promise<void> {
  const faults: string[] = [];
  const tokens = await readTokens({ ...file, createIfMissing: false }, faults);
  for (const fault of faults) report(`${fault}; the tokens stay as they were`);
  if (faults.length > 0) return;
  handler.setTokens(tokens);
  report(`${file.path}: accepts ${pluralize(tokens.length, 'token')}`);
}
