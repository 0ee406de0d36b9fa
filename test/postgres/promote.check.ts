import { rmSync } from 'node:fs';

import t from 'tap';

import { isLong } from '../length.js';
import { missing, startCluster, until, type Cluster } from './cluster.js';
import { startLoad } from './load.js';
import { openStore } from './support.js';

const ROUNDS = isLong ? 20 : 5;

t.setTimeout(1_800_000);

/** Each node waits for the other one as its synchronous standby. */
async function becomesStandby(old: Cluster, primary: Cluster): Promise<void> {
  rmSync(old.data, { recursive: true });
  await primary.copyTo(old.data, 'standby');
  old.configure();
  await old.start();
  await until(async () => {
    const states = await primary.sql('SELECT sync_state FROM pg_stat_replication');
    return states.some(({ sync_state }) => sync_state === 'sync');
  });
}

t.test(`a standby is promoted ${ROUNDS} times under load`, { skip: missing() }, async (t) => {
  const first = await startCluster(t);
  const second = await first.createStandby(t, 'standby');
  await first.sql(`ALTER SYSTEM SET synchronous_standby_names = 'standby'`);
  await second.stop();
  let primary = first;
  let standby = second;
  await first.sql('SELECT pg_reload_conf()');
  await becomesStandby(standby, primary);

  const url = `postgres://postgres@127.0.0.1:${first.port},127.0.0.1:${second.port}/postgres`;
  const stores = await Promise.all([1, 2].map(() => openStore(t, { url, timeoutMs: 1_000 })));
  const load = startLoad(stores);

  for (let round = 1; round <= ROUNDS; round++) {
    await load.proceeds();
    await primary.stop('immediate');
    const killed = performance.now();
    await standby.promote();
    [primary, standby] = [standby, primary];
    await becomesStandby(standby, primary);
    await load.proceeds();
    t.comment(`plants were stored again ${Math.round(performance.now() - killed)} ms later`);
  }
  await load.losesNothing(t, primary.url);
});
