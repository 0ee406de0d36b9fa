import t from 'tap';

import { exactly } from '../helpers/exactly.js';
import { missingForServers, query, startCluster, succeeds, until } from './cluster.js';
import { startStoreLoad } from './load.js';
import { startProxy } from './proxy.js';
import { addUntilStored, openStore, plantsFrom } from './support.js';

t.test('while the database is away', { skip: missingForServers() }, async (t) => {
  const cluster = await startCluster(t);

  const DROP =
    'BEGIN; LOCK TABLE plants; CREATE TABLE copy AS TABLE plants; DROP TABLE plants; COMMIT';
  const RESTORE = 'ALTER TABLE copy ADD PRIMARY KEY (id); ALTER TABLE copy RENAME TO plants';
  type Action = (url: string) => Promise<unknown>;
  /** What makes the server fail, and what makes it work again. */
  const failures: Record<string, [fail: Action, mend: Action]> = {
    'the server is killed': [
      async () => process.kill(cluster.pid(), 'SIGKILL'),
      // The server can start once its other processes have ended.
      () => until(() => succeeds(cluster.start())),
    ],
    'the server hangs': [() => cluster.suspend(), cluster.resume],
    'the table is dropped': [(url) => query(url, DROP), (url) => query(url, RESTORE)],
  };
  for (const [what, [fail, mend]] of Object.entries(failures))
    t.test(`no acknowledged plant is lost: ${what}`, async (t) => {
      const url = await cluster.createSchema();
      // The time limit is long unless the test waits for it, so that a busy machine refuses no
      // plant.
      const timeoutMs = what === 'the server hangs' ? 2_000 : 60_000;
      const store = await openStore(t, { url, timeoutMs });
      const load = startStoreLoad([store]);
      await load.untilProgress();
      await fail(url);
      await until(() => store.reports.length > 0);
      await t.rejects(store.check(), { code: 'unavailable' });
      await mend(url);
      await load.untilProgress();
      await load.expectNothingLost(t, url);
      await until(() => succeeds(store.check()));
      if (what === 'the table is dropped') t.match(store.reports[0], /refuses a plant: .*plants/);
      else t.match(store.reports, exactly(/plants are refused/, /stored again/), 'each once');
    });

  t.test('no acknowledged plant is lost: connections are cut anywhere', async (t) => {
    const url = await cluster.createSchema();
    // Opening this store creates the table, which may take longer than the time limit below.
    await openStore(t, { url });
    const proxy = await startProxy(t, url);
    const store = await openStore(t, { url: proxy.url, timeoutMs: 150 });
    await cluster.endSessions();
    const modes = ['fin', 'rst', 'silence'] as const;
    let cuts = 0;
    proxy.nextCut = () => ({ bytes: ++cuts * 53, mode: modes[cuts % 3] ?? 'fin' });
    const plants = plantsFrom(0, 160).map((plant, n) => ({ ...plant, tag: 'x'.repeat(n) }));
    // Eight plants at a time, so that there are batches.
    for (let n = 0; n < plants.length; n += 8)
      await Promise.all(plants.slice(n, n + 8).map((plant) => addUntilStored(store, plant)));
    proxy.nextCut = () => undefined;
    const again = await Promise.all(plants.map((plant) => addUntilStored(store, plant)));
    t.strictSame(new Set(again), new Set(['unchanged']));
    t.strictSame(await query(url, 'SELECT count(*)::int FROM plants'), [{ count: 160 }]);
  });
});
