import { createPlantHandler } from '../../http/handler.js';
import { pluralize, reportToConsole as report } from '../../report.js';
import { reasonOf } from '../../system-error.js';
import { EXIT, type ExitCode } from '../exit.js';
import type { OpenStore } from '../open-store.js';
import { createPlantServer } from '../server/http-server.js';
import { startMonitor } from '../server/monitor.js';
import { createTokenFile, readTls, readTokens } from '../settings/files.js';
import type { ServerSettings, TokenSource } from '../settings/rules.js';
import { isAbort, whenAborted, type Shutdown } from '../signals.js';

/**
 * Serves a store until a shutdown is requested; a log that is poisoned requests one, too. Resolves to the
 * exit code once the requests in flight are answered and the store is closed. `open` may reject with the reason of the
 * shutdown, or with an error whose cause it is.
 */
export async function serve(
  settings: ServerSettings,
  shutdown: Shutdown,
  open: () => Promise<OpenStore>,
): Promise<ExitCode> {
  const { tokenSource, PLANT_STORE_TLS_CERT: cert, PLANT_STORE_TLS_KEY: key } = settings;
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
    else
      await reportReload(async () => {
        const tokens = await readTokens(tokenSource.path);
        handler.setTokens(tokens);
        return `${tokenSource.path}: accepts ${pluralize(tokens.length, 'token')}`;
      }, 'the tokens stay as they were');
    if (cert !== undefined && key !== undefined)
      await reportReload(async () => {
        server.renewTls(await readTls(cert, key));
        return `${cert}: the certificate and its key were read again`;
      }, 'the certificate stays as it was');
  }
  // One at a time: several that hang would take all threads for file operations, and stop the log.
  let reloaded = Promise.resolve();
  shutdown.onHangup(() => {
    reloaded = reloaded.then(reload);
  });
  if (log) void whenAborted(log.poisoned).then(shutdown.request);
  await whenAborted(requested);
  await server.stop();
  await store.close();
  return log?.poisoned.aborted ? EXIT.failed : EXIT.done;
}

/**
 * Starts the monitor, opens the store, and listens. Rejects with the reason of `stop`, or an error whose cause it is,
 * if that is aborted before the store is open.
 */
async function start(settings: ServerSettings, stop: AbortSignal, open: () => Promise<OpenStore>) {
  const { PLANT_STORE_MONITOR_HOST: host, PLANT_STORE_MONITOR_PORT: port } = settings;
  const monitor = port === undefined ? undefined : await startMonitor(host, port);
  const opened = await open();
  try {
    stop.throwIfAborted();
    const handler = createPlantHandler({
      store: opened.store,
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
    const url = await server.listen(settings.address);
    return { ...opened, monitor, handler, server, url };
  } catch (error) {
    // The connections of a database that is open would keep the process alive.
    await opened.store.close();
    throw error;
  }
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

/** Reports what a reload has done, or why it failed. Never rejects, so that the next reload works. */
async function reportReload(reload: () => Promise<string>, ifFailed: string): Promise<void> {
  report(await reload().catch((error: unknown) => `${reasonOf(error)}; ${ifFailed}`));
}
