import { join } from 'node:path';

import t from 'tap';

import { copyPlants } from '../../dist/program/copy.js';
import { openPlantLog } from '../../dist/index.js';
import { readPlants } from '../../dist/log/read.js';
import { missing, query, startCluster } from './cluster.js';
import { openStore } from './support.js';

const COUNT = 5_000;

t.test('moving from a log to PostgreSQL, and back', { skip: missing() }, async (t) => {
  const { url } = await startCluster(t);
  const folder = t.testdir();
  const [from, to] = ['from.jsonl', 'to.jsonl'].map((name) => join(folder, name)) as [
    string,
    string,
  ];
  const log = await openPlantLog(from);
  const names = ['', '\0', '\ud800', '"\\{},\n', 'é'];
  await Promise.all(
    Array.from({ length: COUNT }, (_, n) =>
      log.add({
        id: BigInt(n),
        name: `${names[n % 5]} ${n}`,
        ...(n % 2 === 0 && { tag: 'indoor' }),
      }),
    ),
  );
  await log.close();
  const store = await openStore(t, { url });
  const all = { created: COUNT, unchanged: 0, different: 0 };

  await store.add({ id: 7n, name: 'another' });
  const different: bigint[] = [];
  const onDifferent = (id: bigint): unknown => different.push(id);
  await copyPlants(readPlants(from), store, { onDifferent });
  t.strictSame(different, [7n], 'what differs is named, and not changed');
  await query(url, 'DELETE FROM plants WHERE id = 7 OR id % 3 = 0');
  t.equal((await copyPlants(readPlants(from), store)).different, 0, 'it can be repeated');
  t.strictSame(await copyPlants(readPlants(from), store), { ...all, created: 0, unchanged: COUNT });

  const copy = await openPlantLog(to);
  t.strictSame(await copyPlants(store.plants(), copy), all);
  t.strictSame(await copyPlants(store.plants(), copy), { ...all, created: 0, unchanged: COUNT });
  t.strictSame(await copyPlants(readPlants(from), copy), { ...all, created: 0, unchanged: COUNT });
  await copy.close();
});
