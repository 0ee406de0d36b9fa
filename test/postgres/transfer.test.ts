import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { openPlantLog } from '../../dist/index.js';
import { claimsIn } from '../log/lock-support.js';
import { missing, until } from './cluster.js';
import { checkOutputs, ends, launchProgram, SCRIPT, startDatabase } from './program.js';
import { startProxy } from './proxy.js';
import { runWithLateReader } from '../system/program.js';

/** The clock stands still, so that no progress is reported. */
const STILL = 'performance.now = () => 0;';
/** A second passes whenever the program looks at the clock. */
const SLOW = 'let now = 0; performance.now = () => (now += 1000);';

t.test('plants move from a log to a database, and back', { skip: missing() }, async (t) => {
  const { cluster, configured, sql, nameIn } = await startDatabase(t);
  const COUNT = 20_000;
  const proxy = await startProxy(t, cluster.port);
  const env = await configured(t, proxy.port);
  const folder = t.testdirName;
  const [from, to] = [join(folder, 'from.jsonl'), join(folder, 'to.jsonl')];
  const plants = Array.from({ length: COUNT }, (_, n) => ({ id: BigInt(n), name: `fern ${n}` }));
  const log = await openPlantLog(from);
  await Promise.all(plants.map((plant) => log.add(plant)));
  await log.close();

  const importing = { env, args: ['import', from], preload: STILL };
  const exporting = { env, args: ['export', to], preload: STILL };
  const plural = (count: number, thing: string): string =>
    `${count} ${thing}${count === 1 ? '' : 's'}`;
  const exported = (path: string, created: number, unchanged = 0, different = 0): string =>
    `${path}: ${plural(created, 'plant')} copied, ${unchanged} unchanged, ${different} different`;
  const imported = (created: number, unchanged = 0, refused = 0, path = from): string =>
    `${path}: ${plural(created, 'plant')} imported, ${unchanged} unchanged, ${plural(refused, 'line')} refused`;
  const refusal = (line: number): string =>
    `line ${line}: id: belongs to a different plant; send another id`;
  const INTERRUPTED = 'plant-store: interrupted; run the same command again to complete it\n';

  t.test('an import that hangs can be interrupted and repeated', async (t) => {
    proxy.nextCut = () => ({ bytes: 300_000, mode: 'silence' });
    const program = launchProgram(t, importing);
    const has = async (query: string): Promise<boolean> => (await sql(env, query)).length > 0;
    await until(() => has(`SELECT 1 FROM pg_tables WHERE tablename = 'plants'`));
    await until(() => has('SELECT 1 FROM plants LIMIT 1'));
    program.send('SIGINT');
    t.strictSame(await program.ended, { code: 3, signal: null });
    t.equal(program.stderr, INTERRUPTED);
    t.match(program.stdout, /^\S+: \d+ plants? imported, 0 unchanged, 0 lines refused\n$/);
    proxy.nextCut = () => undefined;
    const own = `datname = '${nameIn(env)}' AND application_name = 'plant-store'`;
    await until(async () => !(await has(`SELECT 1 FROM pg_stat_activity WHERE ${own}`)));
    const [{ stored } = {}] = await sql(env, 'SELECT count(*)::int AS stored FROM plants');
    const before = Number(stored);
    t.ok(before > 0 && before < COUNT, `${before} plants were stored`);
    await ends(t, { code: 0, stdout: [imported(COUNT - before, before)] }, importing);
  });

  t.test('the line of a plant that differs is refused, and the plant not changed', async (t) => {
    await sql(env, `UPDATE plants SET tag = 'indoor' WHERE id IN (7, 15000)`);
    const stdout = [refusal(8), refusal(15_001), imported(0, COUNT - 2, 2)];
    await ends(t, { code: 1, stdout }, importing);
    const [{ different } = {}] = await sql(
      env,
      `SELECT count(*)::int AS different FROM plants WHERE tag = 'indoor'`,
    );
    t.equal(different, 2);
  });

  t.test('an import waits for the reader of its output if many plants differ', async (t) => {
    await sql(env, `UPDATE plants SET tag = 'outdoor' WHERE tag IS NULL`);
    const { code, lines, waiting } = await runWithLateReader(t, { script: SCRIPT, ...importing });
    t.equal(code, 1);
    t.equal(lines.filter((line) => /^line \d+: id: belongs/.test(line)).length, COUNT);
    t.equal(lines.at(-1), imported(0, 0, COUNT));
    t.ok(waiting > 0 && waiting < 400_000, `${waiting} bytes waited in the program`);
    await sql(env, `UPDATE plants SET tag = NULL WHERE tag = 'outdoor'`);
  });

  t.test('an export that hangs can be interrupted and repeated', async (t) => {
    // The first page arrives, which is 10,000 plants.
    let connections = 0;
    proxy.nextCut = () => (++connections === 3 ? { bytes: 600_000, mode: 'silence' } : undefined);
    const program = launchProgram(t, exporting);
    const lines = (): number => readFileSync(to, 'latin1').split('\n').length - 1;
    await until(() => connections === 3 && lines() === 10_000);
    program.send('SIGTERM');
    t.strictSame(await program.ended, { code: 3, signal: null });
    t.equal(program.stderr, INTERRUPTED);
    t.match(program.stdout, /^\S+: \d+ plants? copied, 0 unchanged, 0 different\n$/);
    await ends(t, { code: 0, stdout: [exported(to, 10_000, 10_000)] }, exporting);
    await ends(t, { code: 0, stdout: [exported(to, 0, COUNT)] }, exporting);
    t.strictSame(claimsIn(folder), [], 'neither does one that is complete');
  });

  for (const args of [importing.args, exporting.args])
    t.test(`${args[0]}: a signal ends it while the database does not answer`, async (t) => {
      let connections = 0;
      proxy.nextCut = () => (connections++, { bytes: 0, mode: 'silence' });
      const program = launchProgram(t, { ...importing, args });
      await until(() => connections > 0);
      program.send('SIGTERM');
      t.strictSame(await program.ended, { code: 3, signal: null });
      t.equal(program.stderr, INTERRUPTED);
      t.equal(program.stdout, '');
      proxy.nextCut = () => undefined;
    });

  t.test('the file store opens what was exported', async (t) => {
    const log = await openPlantLog(to);
    t.equal(log.size, COUNT);
    for (const { id, name } of plants.slice(0, 10)) {
      const plant = id === 7n ? { id, name, tag: 'indoor' } : { id, name };
      t.equal(await log.add(plant), 'unchanged');
    }
    const stderr = [
      `${to}: another process has the log open; one log serves one process, plant-store/postgres serves several`,
      `process ${process.pid} has the log open`,
    ];
    await ends(t, { code: 1, stderr }, exporting);
    await log.close();
  });

  t.test('a log that differs from the database is not changed', async (t) => {
    const bytes = readFileSync(from);
    const args = ['export', from];
    const stdout = ['plant 7 differs', 'plant 15000 differs', exported(from, 0, COUNT - 2, 2)];
    await ends(t, { code: 1, stdout }, { ...exporting, args });
    t.ok(readFileSync(from).equals(bytes));
  });

  t.test('an export reports its progress', async (t) => {
    const path = join(folder, 'few.jsonl');
    await sql(env, 'DELETE FROM plants WHERE id > 1');
    const stderr = [1, 2].map((n) => `exporting ${path}: ${n} plant${n === 1 ? '' : 's'}`);
    await ends(
      t,
      { code: 0, stdout: [exported(path, 2)], stderr },
      { env, args: ['export', path], preload: SLOW },
    );
  });

  t.test('the damaged lines of a log are refused', async (t) => {
    const path = join(folder, 'damaged.jsonl');
    writeFileSync(path, '{"id":50000,"name":"fern"}\n{"id":50001}\n');
    const stdout = ['line 2: name: must be a string', imported(1, 0, 1, path)];
    await ends(t, { code: 1, stdout }, { ...importing, args: ['import', path] });
  });
});

t.test('no output holds a password', { skip: missing() }, async (t) => checkOutputs(t));
