/* Tests the program with a database. */
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import type { TimerOptions } from 'node:timers';
import timers from 'node:timers/promises';

import t, { type Test } from 'tap';

import { exchange, message, TOKEN } from '../helpers/client.js';
import { scrape } from '../helpers/metrics.js';
import { FERN, inJson } from '../helpers/plants.js';
import {
  beforeImports,
  DONE,
  FAILED,
  expectFailedRunHere,
  expectFailedRun,
  launch,
  launchHere,
  run,
  runHere,
  SERVER,
  type LaunchOptions,
  type Process,
} from '../helpers/program.js';
import { freePort, listen } from '../helpers/service.js';
import { missingForServers, startCluster, until } from './cluster.js';

const SECRET = 'pa:ss/w@rd%,';
const CHANGED = 'another-S3cret';

t.test('if pg is missing or broken, the program says why, and what to install', async (t) => {
  const env = { PLANT_STORE_DATABASE_URL: 'postgres://plants@db/plants', PLANT_STORE_TOKEN: 'a' };
  const preload = beforeImports(`if (specifier === 'pg') throw new Error('not found')`);
  const problem = 'cannot load the package pg, which "npm install pg" installs: not found';
  await expectFailedRun(t, FAILED, [problem], { env, preload });
});

t.test('with a database', { skip: missingForServers() }, async (t) => {
  const cluster = await startCluster(t, 'host all client all scram-sha-256\n');
  await cluster.sql(
    `CREATE ROLE client LOGIN PASSWORD '${SECRET}'; CREATE SCHEMA AUTHORIZATION client`,
  );
  const password = join(t.testdir({ password: `${SECRET}\n` }), 'password');
  const env = {
    PLANT_STORE_TOKEN: TOKEN,
    PLANT_STORE_DATABASE_URL: cluster.urlOf('postgres', 'client'),
    PLANT_STORE_DATABASE_PASSWORD_FILE: password,
  };
  const programs: Process[] = [];

  /** Starts the program in this process or in one of its own. Resolves once it serves. */
  async function start(t: Test, options: LaunchOptions, begin = launchHere) {
    const program = begin(t, options);
    programs.push(program);
    const [, port] = await program.says('stdout', /^plant-store listening on .*:(\d+)\n/);
    /** The status of the answer to a plant with this id. */
    async function post(id: bigint): Promise<number> {
      const plant = message({ body: inJson({ ...FERN, id }) });
      return (await exchange(t, Number(port), plant)).status;
    }
    return Object.assign(program, { post });
  }

  t.test(
    'a plant answered with 200 is a row, and a server that could lose it is refused',
    async (t) => {
      const name = `127.0.0.1:${cluster.port}/postgres`;
      await cluster.configure('SET fsync = off');
      const reason = 'fsync=off can lose plants';
      await expectFailedRunHere(t, FAILED, [`PLANT_STORE_DATABASE_URL: ${name}: ${reason}`], {
        env,
      });
      await cluster.configure('RESET fsync');
      const program = await start(t, { env }, launch);
      await program.says('stdout', /^token: from PLANT_STORE_TOKEN \(1 token\)\n/m);
      t.match(program.stdout, `\ndatabase: ${name}\n`);
      const created = 'the table plants was missing; an empty one was created';
      t.equal(program.stderr, `plant-store: ${name}: ${created}\n`);
      t.equal(await program.post(7n), 200);
      t.strictSame(await cluster.sql('TABLE client.plants'), [{ ...FERN, id: '7', exact: null }]);
      program.send('SIGTERM');
      t.strictSame(await program.ended, DONE);
    },
  );

  t.test('the program is ready while its database can store plants', async (t) => {
    const program = await start(t, { env: { ...env, PLANT_STORE_MONITOR_PORT: '0' } });
    const [, monitor = ''] = await program.says('stdout', /^monitor: (http:.*)\n/m);
    const page = async (path: string): Promise<string> => (await fetch(monitor + path)).text();
    t.equal(await page('/readyz'), 'ok');
    t.equal(await program.post(1n), 200);
    await cluster.stop();
    t.equal(await program.post(2n), 503);
    t.equal(await page('/readyz'), 'unavailable');
    t.equal(await page('/livez'), 'ok');
    await cluster.start();
    await until(async () => (await page('/readyz')) === 'ok');
    t.equal(await program.post(2n), 200);

    const samples = await scrape(monitor);
    t.equal(samples.get('plant_store_plants_stored_total'), 2);
    t.notOk(samples.has('plant_store_log_plants'), 'there is no log');
  });

  t.test('a start tries again every 3 s, unless waiting cannot help', async (t) => {
    const pause = timers.setTimeout;
    // Teardowns run in reverse order: this one runs after `setTimeout` is restored.
    t.teardown(syncBuiltinESMExports);
    const started = t.capture(timers, 'setTimeout', (ms = 0, ...more: [unknown, TimerOptions]) =>
      pause(ms / 100, ...more),
    );
    syncBuiltinESMExports();
    const settings = { ...env, PLANT_STORE_MONITOR_PORT: String(await freePort()) };
    const page = `http://127.0.0.1:${settings.PLANT_STORE_MONITOR_PORT}/readyz`;
    await cluster.stop();
    const program = launchHere(t, { env: settings });
    programs.push(program);
    await program.says('stderr', /^plant-store: .*ECONNREFUSED.*; trying again in 3 s\n/);
    t.equal(await (await fetch(page)).text(), 'starting');
    await cluster.start();
    await program.says('stdout', /^plant-store listening/);
    // Shorter pauses are those of the test.
    const pauses = started().flatMap(({ args: [ms = 0] }) => (ms > 100 ? ms : []));
    t.strictSame(new Set(pauses), new Set([3_000]));
    program.send('SIGTERM');
    t.strictSame(await program.ended, DONE);
    const wrong = { ...env, PLANT_STORE_DATABASE_URL: cluster.urlOf('none', 'client') };
    const refused = await runHere(t, { env: wrong });
    t.match(refused, { code: FAILED, stderr: /database "none" does not exist/ });
  });

  t.test('a start that fails leaves no connection, which would keep it from ending', async (t) => {
    const port = await listen(t, createServer());
    const inUse = `PLANT_STORE_PORT: cannot listen on 127.0.0.1, port ${port}: address already in use (EADDRINUSE)`;
    await expectFailedRun(t, FAILED, [inUse], { env: { ...env, PLANT_STORE_PORT: `${port}` } });
  });

  t.test('export prints the plants of the database as import takes them', async (t) => {
    await cluster.sql('TRUNCATE client.plants');
    const plants =
      '{"id":-7,"name":"\\u0000\\ud800"}\n{"id":9007199254740993,"name":"室内","tag":""}\n';
    const cwd = t.testdir({ 'plants.jsonl': plants });
    const imported = await runHere(t, { cwd, env, args: ['import', 'plants.jsonl'] });
    t.equal(imported.code, 0);
    const exported = await runHere(t, { cwd, env, args: ['export'] });
    t.match(exported, { code: 0, stdout: plants, stderr: '' });
    const full = ['sh', '-c', 'exec "$0" "$1" export > /dev/full', process.execPath, SERVER];
    const failed = await run(t, { cwd, env, command: full });
    t.match(failed, { code: FAILED, signal: null, stderr: /ENOSPC\)\n$/ }, 'and a failure ends it');
  });

  t.test('the password file is read for each connection', async (t) => {
    const program = await start(t, { env: { ...env, PLANT_STORE_DATABASE_CONNECTIONS: '1' } });
    await cluster.sql(`ALTER ROLE client PASSWORD '${CHANGED}'`);
    t.equal(await program.post(1n), 200, 'a connection outlives its password');
    t.equal(await cluster.endSessions(), 1);
    t.equal(await program.post(2n), 503);
    t.equal(await program.post(2n), 503);
    writeFileSync(password, CHANGED);
    await until(async () => (await program.post(2n)) === 200);
    const lines =
      /^.*; plants are refused until it is available again\n.*: plants are stored again\n$/;
    t.match(program.stderr, lines, 'each once, and without a stack');
  });

  t.test('no output holds a password', async (t) => {
    t.equal(programs.length, 4);
    for (const { stdout, stderr } of programs)
      for (const secret of [SECRET, encodeURIComponent(SECRET), CHANGED])
        t.notOk((stdout + stderr).includes(secret));
  });
});
