import { createPlantHandler, type PlantHandler } from '../http/handler.js';
import { pluralize } from '../pluralize.js';
import { reportToConsole as report } from '../report.js';
import type { PlantStore } from '../store.js';
import { codeOf, reasonOf } from '../system-error.js';
import {
  createTokenFile,
  readTls,
  readTokens,
  reportExpiry,
  type NamedFile,
  type Tls,
} from './credentials.js';
import { countDescriptors, fitConnections, type ConnectionLimits } from './descriptors.js';
import { EXIT, STOPPING, type ExitCode } from './exit.js';
import { createListener, type Listener } from './listener.js';
import { MONITOR_LIMITS, startMonitor, type Monitor, type Watched } from './monitor.js';
import { SettingsError } from './settings-error.js';
import type { ServerSettings } from './settings.js';
import { aborted, type Shutdown } from './signals.js';

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
 * Serves a store until a shutdown is requested; a store that is poisoned requests one, too. Resolves to the
 * exit code once the requests in flight are answered and the store is closed. `open` may reject once the
 * shutdown is requested. `ofDatabase` is how many descriptors the connections to a database need.
 */
export async function serve(
  settings: ServerSettings,
  shutdown: Shutdown,
  open: () => Promise<ServedStore>,
  ofDatabase = 0,
): Promise<ExitCode> {
  const { tokenFile } = settings;
  const { requested } = shutdown;
  const started = await start(settings, requested, open, ofDatabase).catch((error: unknown) => {
    if (!requested.aborted) throw error;
  });
  if (!started) return EXIT.done;
  const { served, handler, listener, url, monitor } = started;
  const { store, lines, poisoned } = served;

  console.log(`plant-store listening on ${url}`);
  for (const line of lines) console.log(line);
  console.log(`token: ${tokenFile?.path ?? 'from PLANT_STORE_TOKEN'}`);
  if (monitor) console.log(`monitor: ${monitor.url}`);
  /** The certificate in use. */
  let { tls } = settings;
  monitor?.watch({
    ...served,
    listener,
    stop: requested,
    bufferedBytes: () => handler.bufferedBytes(),
    notAfter: () => tls?.notAfter,
  });
  if (tls) reportExpiry(tls, report);

  async function reload(): Promise<void> {
    if (tokenFile) await reloadTokens(tokenFile, handler);
    else report('SIGHUP: the tokens in PLANT_STORE_TOKEN change only with a restart');
    if (!tls) return;
    tls = await reloadTls(tls, listener);
    reportExpiry(tls, report);
  }
  // One at a time: several that hang would take all threads for file operations, and stop the log.
  let reloaded = Promise.resolve();
  shutdown.onHangup(() => {
    reloaded = reloaded.then(reload);
  });
  if (poisoned) void aborted(poisoned).then(shutdown.request);
  await aborted(requested);
  await listener.stop(STOPPING.clientsMs);
  await store.close();
  return poisoned?.aborted ? EXIT.failed : EXIT.done;
}

/**
 * Starts the monitor, opens the store, and serves it, unless `stop` is aborted by then. If it cannot be served, it
 * is not closed: nothing is pending, and the lock of a log vanishes with the process.
 */
async function start(
  given: ServerSettings,
  stop: AbortSignal,
  open: () => Promise<ServedStore>,
  ofDatabase: number,
) {
  const limits = limitConnections(given, ofDatabase);
  const settings = { ...given, maxConnections: limits.service };
  const { monitor: place } = settings;
  const ownConnections = limits.monitor;
  const monitor = place && (await startMonitor({ ...settings, ...place, ownConnections }));
  const served = await open();
  stop.throwIfAborted();
  return { served, monitor, ...(await startServer(settings, served.store, monitor)) };
}

/** Lowers the limits of connections if too few descriptors are free, and reports that of the service. */
function limitConnections(
  { maxConnections, monitor }: ServerSettings,
  ofDatabase: number,
): ConnectionLimits {
  const wanted = { service: maxConnections, monitor: monitor ? MONITOR_LIMITS.maxConnections : 0 };
  const limits = fitConnections(wanted, ofDatabase, countDescriptors());
  if (limits.service < maxConnections)
    report(
      `PLANT_STORE_MAX_CONNECTIONS: lowered to ${limits.service}, because too few open files are allowed (ulimit -n)`,
    );
  return limits;
}

/** Serves a store on the configured port. Creates the token file if there is no token. */
async function startServer(settings: ServerSettings, store: PlantStore, monitor?: Monitor) {
  const { tokenFile } = settings;
  let { tokens } = settings;
  if (tokenFile && tokens.length === 0) {
    await createTokenFile(tokenFile.path);
    tokens = await readTokens(tokenFile);
  }
  const handler = createPlantHandler({ ...settings, tokens, store });
  const measured = monitor?.measure(handler) ?? handler;
  const listener = createListener({ ...settings, handler: measured });
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

/** Resolves to the certificate that is in use then. Never rejects, so that the next reload works. */
async function reloadTls(tls: Tls, listener: Listener): Promise<Tls> {
  const { files } = tls;
  try {
    const renewed = await readTls(files);
    listener.renewTls(renewed);
    report(`${files.cert.path}: the certificate and its key were read again`);
    return renewed;
  } catch (error) {
    report(`${reasonOf(error)}; the certificate stays as it was`);
    return tls;
  }
}
