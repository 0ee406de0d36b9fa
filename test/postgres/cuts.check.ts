import t from 'tap';

import { isLong } from '../length.js';
import { missing, query, startCluster } from './cluster.js';
import { startProxy, type Cut } from './proxy.js';
import { addUntilStored, openStore } from './support.js';

const CONNECTIONS = isLong ? 3_000 : 400;
const MODES: readonly Cut['mode'][] = ['fin', 'rst', 'silence'];

t.setTimeout(1_800_000);

t.test(`${CONNECTIONS} connections are cut at random`, { skip: missing() }, async (t) => {
  const { url, port } = await startCluster(t);
  // Creates the table.
  await openStore(t, { url });
  const proxy = await startProxy(t, port);
  const throughProxy = `postgres://postgres@127.0.0.1:${proxy.port}/postgres`;
  const store = await openStore(t, { url: throughProxy, timeoutMs: 300, connections: 4 });
  // Enough for the start of a connection, and for a batch of all clients.
  proxy.nextCut = () => ({
    bytes: Math.floor(Math.random() * 24_000),
    mode: MODES[Math.floor(Math.random() * MODES.length)] ?? 'fin',
  });
  // Those that are open already are not cut by the proxy.
  await query(
    url,
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE application_name = 'plant-store'`,
  );

  let id = 0n;
  let unchanged = 0;
  const clients = Array.from({ length: 32 }, async () => {
    while (proxy.connections < CONNECTIONS) {
      const plant = { id: id++, name: 'x'.repeat(Math.floor(Math.random() * 500)) };
      // Stored though it was refused, if its acknowledgement was lost.
      if ((await addUntilStored(store, plant)) === 'unchanged') unchanged++;
    }
  });
  await Promise.all(clients);
  t.strictSame(await query(url, 'SELECT count(*)::text FROM plants'), [{ count: String(id) }]);
  t.ok(unchanged > 0);
  t.comment(`${id} plants, ${unchanged} stored though refused`);
});
