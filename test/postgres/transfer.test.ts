import { join } from 'node:path';

import t from 'tap';

import { openPlantLog } from '../../dist/index.js';
import { missing, until } from './cluster.js';
import { checkOutputs, ends, launchProgram, startDatabase } from './program.js';
import { startProxy } from './proxy.js';

/** The clock stands still, so that no progress is reported. */
const STILL = 'performance.now = () => 0;';

t.test('plants move from a log to a database', { skip: missing() }, async (t) => {
  const { cluster, configured, sql, nameIn } = await startDatabase(t);
  const COUNT = 20_000;
  const proxy = await startProxy(t, cluster.port);
  const env = await configured(t, proxy.port);
  const folder = t.testdirName;
  const from = join(folder, 'from.jsonl');
  const plants = Array.from({ length: COUNT }, (_, n) => ({ id: BigInt(n), name: `fern ${n}` }));
  const log = await openPlantLog(from);
  await Promise.all(plants.map((plant) => log.add(plant)));
  await log.close();

  const importing = { env, args: ['import', from], preload: STILL };
  const INTERRUPTED = 'plant-store: interrupted; run the same command again to complete it\n';

  t.test('an import that hangs can be interrupted and repeated', async (t) => {
    proxy.nextCut = () => ({ bytes: 300_000, mode: 'silence' });
    const program = launchProgram(t, importing);
    const has = async (query: string): Promise<boolean> => (await sql(env, query)).length > 0;
    await until(() => has(`SELECT 1 FROM pg_tables WHERE tablename = 'plants'`));
    await until(() => has('SELECT 1 FROM plants LIMIT 1'));
    program.send('SIGINT');
    t.strictSame(await program.ended, { code: 3, signal: null });
    // The database may have been reported as away by then.
    t.ok(program.stderr.endsWith(INTERRUPTED), program.stderr);
    t.match(program.stdout, /^\S+: \d+ plants? imported, 0 unchanged, 0 lines refused\n$/);
    proxy.nextCut = () => undefined;
    const own = `datname = '${nameIn(env)}' AND application_name = 'plant-store'`;
    await until(async () => !(await has(`SELECT 1 FROM pg_stat_activity WHERE ${own}`)));
    const [{ stored } = {}] = await sql(env, 'SELECT count(*)::int AS stored FROM plants');
    const before = Number(stored);
    t.ok(before > 0 && before < COUNT, `${before} plants were stored`);
    const imported = `${COUNT - before} plants imported, ${before} unchanged, 0 lines refused`;
    await ends(t, { code: 0, stdout: [`${from}: ${imported}`] }, importing);
  });

  t.test('a signal ends an import while the database does not answer', async (t) => {
    let connections = 0;
    proxy.nextCut = () => (connections++, { bytes: 0, mode: 'silence' });
    const program = launchProgram(t, importing);
    await until(() => connections > 0);
    program.send('SIGTERM');
    t.strictSame(await program.ended, { code: 3, signal: null });
    t.equal(program.stderr, INTERRUPTED);
    t.equal(program.stdout, '');
    proxy.nextCut = () => undefined;
  });
});

t.test('no output holds a password', { skip: missing() }, async (t) => checkOutputs(t));
