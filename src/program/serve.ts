import { createPlantHandler, type PlantHandler } from '../http/handler.js';
import { pluralize, reportToConsole as report } from '../report.js';
import type { PlantStore } from '../store.js';
import { reasonOf } from '../system-error.js';
import { EXIT, type ExitCode } from './exit.js';
import type { OpenStore } from './open-store.js';
import { createPlantServer, STOP_TIMES, type PlantServer } from './server/http-server.js';
import { startMonitor, type Monitor } from './server/monitor.js';
import { createTokenFile, readTls, readTokens } from './settings/files.js';
import type { ServerSettings, TokenSource } from './settings/server.js';
import { aborted, isAbort, type Shutdown } from './signals.js';

/**
 * Serves a store until a shutdown is requested; a store that is poisoned requests one, too. Resolves to the
 * exit code once the requests in flight are answered and the store is closed. `open` may reject with the reason of the
 * shutdown, or with an error whose cause it is.
 */
export async function serve(
  settings: ServerSettings,
  shutdown: Shutdown,
  open: () => Promise<OpenStore>,
): Promise<ExitCode> {
  const { tokenSource } = settings;
  const { requested } = shutdown;
  const started = await start(settings, requested, open).catch((error: unknown) => {
    if (!isAbort(error, requested)) throw error;
  });
  if (!started) return EXIT.done;
  const { store, place, log, handler, server, url, monitor } = started;

  console.log(`plant-store listening on ${url}`);
  console.log(place);
  if (log) console.log(`plants: ${log.size}`);
  console.log(`token: ${nameOf(tokenSource)}`);
  if (monitor) console.log(`monitor: ${monitor.url}`);
  monitor?.watch({
    check: () => store.check(),
    stop: requested,
    gauges: async () => ({
      ...(await server.connections()),
      maxConnections: settings.PLANT_STORE_MAX_CONNECTIONS,
      bufferedBytes: handler.bufferedBytes(),
      maxBufferedBytes: settings.PLANT_STORE_MAX_BUFFERED,
      log,
    }),
  });

  async function reload(): Promise<void> {
    if (tokenSource.kind === 'variable')
      report('SIGHUP: the tokens in PLANT_STORE_TOKEN change only with a restart');
    else await reloadTokens(tokenSource.path, handler);
    await reloadTls(settings, server);
  }
  // One at a time: several that hang would take all threads for file operations, and stop the log.
  let reloaded = Promise.resolve();
  shutdown.onHangup(() => {
    reloaded = reloaded.then(reload);
  });
  if (log) void aborted(log.poisoned).then(shutdown.request);
  await aborted(requested);
  await server.stop(STOP_TIMES.requestsMs);
  await store.close();
  return log?.poisoned.aborted ? EXIT.failed : EXIT.done;
}

/** Starts the monitor, opens the store, and serves it, unless `stop` is aborted by then. */
async function start(settings: ServerSettings, stop: AbortSignal, open: () => Promise<OpenStore>) {
  const { PLANT_STORE_MONITOR_HOST: host, PLANT_STORE_MONITOR_PORT: port } = settings;
  const monitor = port === undefined ? undefined : await startMonitor(host, port);
  const opened = await open();
  try {
    stop.throwIfAborted();
    return { ...opened, monitor, ...(await startServer(settings, opened.store, monitor)) };
  } catch (error) {
    // Its connections would keep the process alive.
    await opened.store.close();
    throw error;
  }
}

async function startServer(
  settings: ServerSettings,
  store: PlantStore,
  monitor: Monitor | undefined,
) {
  const handler = createPlantHandler({
    store,
    tokens: await tokensOf(settings.tokenSource),
    maxBodyBytes: settings.PLANT_STORE_MAX_BODY,
    maxBufferedBytes: settings.PLANT_STORE_MAX_BUFFERED,
  });
  const server = createPlantServer({
    handler: monitor?.measure(handler) ?? handler,
    maxConnections: settings.PLANT_STORE_MAX_CONNECTIONS,
    keepAliveMs: 1_000 * settings.PLANT_STORE_KEEP_ALIVE_SECONDS,
    tls: settings.tls,
  });
  const url = await server.listen(
    settings.inheritedSocket === undefined
      ? { host: settings.PLANT_STORE_HOST, port: settings.PLANT_STORE_PORT }
      : { fd: settings.inheritedSocket },
  );
  return { handler, server, url };
}

/** Names where tokens come from, without the tokens. */
function nameOf(source: TokenSource): string {
  if (source.kind !== 'variable') return source.path;
  return `from PLANT_STORE_TOKEN (${pluralize(source.tokens.length, 'token')})`;
}

async function tokensOf(source: TokenSource): Promise<readonly string[]> {
  if (source.kind !== 'new file') return source.tokens;
  await createTokenFile(source.path);
  // Another program or the operator may have created it meanwhile.
  return readTokens(source.path);
}

/** Never rejects, so that the next reload works. */
async function reloadTokens(file: string, handler: PlantHandler): Promise<void> {
  try {
    const tokens = await readTokens(file);
    handler.setTokens(tokens);
    report(`${file}: accepts ${pluralize(tokens.length, 'token')}`);
  } catch (error) {
    report(`${reasonOf(error)}; the tokens stay as they were`);
  }
}

/** Never rejects, so that the next reload works. */
async function reloadTls(settings: ServerSettings, server: PlantServer): Promise<void> {
  const { PLANT_STORE_TLS_CERT: cert, PLANT_STORE_TLS_KEY: key } = settings;
  if (cert === undefined || key === undefined) return;
  try {
    server.renewTls(await readTls(cert, key));
    report(`${cert}: the certificate and its key were read again`);
  } catch (error) {
    report(`${reasonOf(error)}; the certificate stays as it was`);
  }
}
