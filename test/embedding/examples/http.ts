import { handler, store } from './handler.js';

import { once } from 'node:events';
import { createServer } from 'node:http';

const server = createServer(handler).listen(8080);
process.once('SIGTERM', stop);
store.poisoned.addEventListener('abort', stop);

async function stop() {
  setTimeout(() => server.closeAllConnections(), 8_000).unref();
  await once(server.close(), 'close');
  await store.close();
  if (store.poisoned.aborted) process.exitCode = 1;
}
