import { createPlantHandler, type PlantHandler } from '../../http/handler.js';
import { pluralize, reportToConsole as report } from '../../report.js';
import { reasonOf } from '../../system-error.js';
import { EXIT, type ExitCode } from '../exit.js';
import type { OpenedStore } from '../open-store.js';
import { createPlantServer, type PlantServer } from '../server/http-server.js';
import { startMonitor } from '../server/monitor.js';
import { createTokenFile, readTls, readTokens, validityOf } from '../settings/files.js';
import type { ServerSettings, TokenSource } from '../settings/rules.js';
import { isAbort, whenAborted, type Shutdown } from '../signals.js';

/**
 * Serves the store that `open` opens, until a shutdown is requested. A poisoned log requests one.
 * Resolves to the exit code once the requests in flight are answered and the store is closed.
 *
 * `open` is called after the monitor has started, which reports meanwhile that the program is
 * starting. If a shutdown is requested, `open` may reject with its reason, or with an error caused
 * by the reason. Tests open other stores than the program does.
 */
export async function serve(
  settings: ServerSettings,
  shutdown: Shutdown,
  open: () => Promise<OpenedStore>,
): Promise<ExitCode> {
  const { requested } = shutdown;
  const started = await start(settings, requested, open).catch((error: unknown) => {
    if (!isAbort(error, requested)) throw error;
  });
  if (!started) return EXIT.done;
  const { server, reload } = started;
  const { store, log } = started.opened;

  // One reload at a time: if each SIGHUP started one at once, several that hang would take all
  // threads of libuv's pool, and stop the log.
  let lastReload = Promise.resolve();
  shutdown.onHangup(() => {
    lastReload = lastReload.then(reload);
  });
  if (log) void whenAborted(log.poisoned).then(shutdown.request);
  await whenAborted(requested);
  await server.stop();
  await store.close();
  return log?.poisoned.aborted ? EXIT.failed : EXIT.done;
}

/** What a start has opened. */
interface Started {
  readonly opened: OpenedStore;
  readonly server: PlantServer;
  /** Reads the token file again, then the certificate and its key. Never rejects. */
  readonly reload: () => Promise<void>;
}

/**
 * Starts the monitor, opens the store, listens, and prints the addresses. If `stop` is aborted
 * before the store is open, rejects with the reason of `stop`, or an error caused by it.
 */
async function start(
  settings: ServerSettings,
  stop: AbortSignal,
  open: () => Promise<OpenedStore>,
): Promise<Started> {
  const {
    address,
    tokenSource,
    tls,
    PLANT_STORE_TLS_CERT: cert,
    PLANT_STORE_TLS_KEY: key,
    PLANT_STORE_MAX_BODY: maxBodyBytes,
    PLANT_STORE_MAX_BUFFERED: maxBufferedBytes,
    PLANT_STORE_MAX_CONNECTIONS: maxConnections,
    PLANT_STORE_MONITOR_HOST: monitorHost,
    PLANT_STORE_MONITOR_PORT: monitorPort,
    PLANT_STORE_KEEP_ALIVE_SECONDS: keepAliveSeconds,
    ...unused
  } = settings;
  // Each setting has to have an effect: this only compiles if all are named above.
  unused satisfies Record<string, never>;

  const monitor =
    monitorPort === undefined ? undefined : await startMonitor(monitorHost, monitorPort);
  const opened = await open();
  const { store, place, log } = opened;
  try {
    stop.throwIfAborted();
    const handler = createPlantHandler({
      store,
      tokens: await resolveTokens(tokenSource),
      maxBodyBytes,
      maxBufferedBytes,
    });
    const server = createPlantServer({
      handler: monitor?.measure(handler) ?? handler,
      maxConnections,
      keepAliveMs: 1_000 * keepAliveSeconds,
      tls,
    });
    const url = await server.listen(address);
    console.log(`plant-store listening on ${url}`);
    console.log(place);
    if (log) console.log(`plants: ${log.size}`);
    console.log(`token: ${describeSource(tokenSource)}`);
    if (tls && cert !== undefined) console.log(`certificate: ${cert}, ${validityOf(tls)}`);
    if (monitor) console.log(`monitor: ${monitor.url}`);
    monitor?.watch({
      check: () => store.check(),
      stop,
      gauges: async () => ({
        ...(await server.countConnections()),
        maxConnections,
        bufferedBytes: handler.bufferedBytes(),
        maxBufferedBytes,
        log,
      }),
    });

    async function reload(): Promise<void> {
      await reloadTokens(tokenSource, handler);
      if (cert !== undefined && key !== undefined) await reloadCertificate(cert, key, server);
    }
    return { opened, server, reload };
  } catch (error) {
    // The connections of an open database would keep the process alive.
    await store.close();
    throw error;
  }
}

/** Describes where tokens come from, without the tokens. */
function describeSource(source: TokenSource): string {
  if (source.kind !== 'variable') return source.path;
  return `from PLANT_STORE_TOKEN (${pluralize(source.tokens.length, 'token')})`;
}

/** Returns the tokens of a source. Creates the token file if it has to be created. */
async function resolveTokens(source: TokenSource): Promise<readonly string[]> {
  if (source.kind !== 'new file') return source.tokens;
  await createTokenFile(source.path);
  // Another program or the operator may have created it meanwhile.
  return readTokens(source.path);
}

async function reloadTokens(source: TokenSource, handler: PlantHandler): Promise<void> {
  if (source.kind === 'variable') {
    report('SIGHUP: the tokens in PLANT_STORE_TOKEN change only with a restart');
    return;
  }
  await reportReload(async () => {
    const tokens = await readTokens(source.path);
    handler.setTokens(tokens);
    return `${source.path}: accepts ${pluralize(tokens.length, 'token')}`;
  }, 'the tokens stay as they were');
}

async function reloadCertificate(cert: string, key: string, server: PlantServer): Promise<void> {
  await reportReload(async () => {
    const tls = await readTls(cert, key);
    server.renewTls(tls);
    return `${cert}: the certificate and its key were read again: ${validityOf(tls)}`;
  }, 'the certificate stays as it was');
}

/** Reports what a reload has done, or why it failed. Never rejects: the next reload follows it. */
async function reportReload(reload: () => Promise<string>, ifFailed: string): Promise<void> {
  report(await reload().catch((error: unknown) => `${reasonOf(error)}; ${ifFailed}`));
}
