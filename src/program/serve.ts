import { createPlantHandler, type PlantHandler } from '../http/handler.js';
import { pluralize, reportToConsole as report } from '../report.js';
import type { PlantStore } from '../store.js';
import { codeOf, reasonOf } from '../system-error.js';
import {
  createTokenFile,
  readTls,
  readTokens,
  type NamedFile,
  type TlsFiles,
} from './credentials.js';
import { EXIT, exitWithin, type ExitCode } from './exit.js';
import { createListener, STOPPING, type Listener } from './listener.js';
import { startMonitor, type Watched } from './monitor.js';
import { SettingsError } from './settings-error.js';
import type { ServerSettings } from './settings.js';
import { aborted, handleSignals } from './signals.js';

/** A store that a program serves. */
export interface ServedStore {
  readonly store: PlantStore;
  /** Lines about the store, which are printed at start. */
  readonly lines: readonly string[];
  /** The log, if plants are kept in one. */
  readonly log?: Watched['log'];
  /** Rejects if the store cannot store plants at the moment. */
  readonly check?: Watched['check'];
  /** Aborted once the store refuses all plants. */
  readonly poisoned?: AbortSignal;
}

/**
 * Serves a store until a signal stops the program or the store is poisoned. Resolves to the exit code once
 * the requests in flight are answered and the store is closed; if that takes {@link STOPPING}`.totalMs`,
 * the process ends. `open` may reject once its signal is aborted.
 */
export async function serve(
  settings: ServerSettings,
  open: (stop: AbortSignal) => Promise<ServedStore>,
): Promise<ExitCode> {
  const { tokenFile } = settings;
  const signals = handleSignals();
  const { monitor: place } = settings;
  const monitor = place && (await startMonitor({ ...settings, ...place }));
  // Before the program listens, nobody can have sent a plant, so a signal ends it without waiting.
  const served = await Promise.race([open(signals.stop), aborted(signals.stop)]);
  if (!served) return EXIT.done;
  const { store, lines, poisoned } = served;
  const { handler, listener, url } = await startServer(settings, store).catch(
    async (error: unknown) => {
      await store.close();
      throw error;
    },
  );

  console.log(`plant-store listening on ${url}`);
  for (const line of lines) console.log(line);
  console.log(`token: ${tokenFile?.path ?? 'from PLANT_STORE_TOKEN'}`);
  if (monitor) console.log(`monitor: ${monitor.url}`);
  const stop = AbortSignal.any([signals.stop, poisoned].filter((signal) => signal !== undefined));
  monitor?.watch({ ...served, listener, stop });

  let reloaded = Promise.resolve();
  signals.onReload(() => {
    if (!tokenFile) report('SIGHUP: the tokens in PLANT_STORE_TOKEN change only with a restart');
    reloaded = reloaded.then(async () => {
      if (tokenFile) await reloadTokens(tokenFile, handler);
      if (settings.tls) await reloadTls(settings.tls.files, listener);
    });
  });
  await aborted(stop);
  exitWithin(STOPPING.totalMs);
  await listener.stop(STOPPING.clientsMs);
  await store.close();
  return poisoned?.aborted ? EXIT.failed : EXIT.done;
}

/** Serves a store on the configured port. Creates the token file if there is no token. */
async function startServer(settings: ServerSettings, store: PlantStore) {
  const { tokenFile } = settings;
  let { tokens } = settings;
  if (tokenFile && tokens.length === 0) {
    await createTokenFile(tokenFile.path);
    tokens = await readTokens(tokenFile);
  }
  const handler = createPlantHandler({ ...settings, tokens, store });
  const listener = createListener({ ...settings, handler });
  return { handler, listener, url: await listen(listener, settings) };
}

/** Listens, or rejects with the setting that has to be changed. */
async function listen(listener: Listener, settings: ServerSettings): Promise<string> {
  const { host, port, inheritedSocket } = settings;
  try {
    if (inheritedSocket === undefined) return await listener.listen(host, port);
    return await listener.listenOn(inheritedSocket);
  } catch (error) {
    const { message, cause } = error as Error;
    if (inheritedSocket !== undefined) throw new SettingsError([`LISTEN_FDS: ${message}`]);
    const isPort = ['EADDRINUSE', 'EACCES'].includes(String(codeOf(cause)));
    throw new Error(`${isPort ? 'PLANT_STORE_PORT' : 'PLANT_STORE_HOST'}: ${message}`, { cause });
  }
}

/** Never rejects, so that the next reload works. */
async function reloadTokens(file: NamedFile, handler: PlantHandler): Promise<void> {
  try {
    const tokens = await readTokens(file);
    handler.setTokens(tokens);
    report(`${file.path}: accepts ${pluralize(tokens.length, 'token')}`);
  } catch (error) {
    report(`${reasonOf(error)}; the tokens stay as they were`);
  }
}

/** Never rejects, so that the next reload works. */
async function reloadTls(files: TlsFiles, listener: Listener): Promise<void> {
  try {
    listener.renewTls(await readTls(files));
    report(`${files.cert.path}: the certificate and its key were read again`);
  } catch (error) {
    report(`${reasonOf(error)}; the certificate stays as it was`);
  }
}
