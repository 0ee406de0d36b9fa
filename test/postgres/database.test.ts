import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { STOPPING } from '../../dist/program/exit.js';
import { connect, exchange, message, TOKEN } from '../client.js';
import { scrape } from '../metrics.js';
import { skipTime } from '../system/program.js';
import { missing, until } from './cluster.js';
import { CHANGED, checkOutputs, ends, SECRET, start, startDatabase, WELL } from './program.js';

t.test('without pg, the program says what to install', async (t) => {
  const env = {
    PLANT_STORE_TOKEN: TOKEN,
    PLANT_STORE_DATABASE_URL: 'postgres://client@127.0.0.1/plants',
  };
  const hooks = `export async function resolve(specifier, context, next) {
    if (specifier === 'pg') throw new Error('not found');
    return next(specifier, context);
  }`;
  const preload = `import { register } from 'node:module';
    register('data:text/javascript,${encodeURIComponent(hooks).replaceAll("'", '%27')}');`;
  const stderr = ['the package pg cannot be loaded; install it with: npm install pg'];
  await ends(t, { code: 1, stderr }, { preload, env });
});

t.test('with a database', { skip: missing() }, async (t) => {
  const { cluster, configured, sql, nameIn } = await startDatabase(t);

  t.test('a plant answered with 200 is a row', async (t) => {
    const { PLANT_STORE_TOKEN, ...settings } = await configured(t);
    const tokens = join(t.testdirName, 'tokens');
    writeFileSync(tokens, `${PLANT_STORE_TOKEN}\n`);
    const env = { ...settings, PLANT_STORE_TOKEN_FILE: tokens };
    // These are not settings of the program.
    const others = { PGPASSWORD: 'x', PGHOST: 'x', PGOPTIONS: '-c x', NODE_PG_FORCE_NATIVE: '1' };
    const program = await start(t, { env: { ...env, ...others } });
    t.strictSame(program.stdout.split('\n').slice(1), [
      `database: 127.0.0.1:${cluster.port}/${nameIn(env)}`,
      `token: ${tokens}`,
      '',
    ]);
    t.equal(await program.post(7), 200);
    t.strictSame(await sql(env, 'SELECT * FROM plants'), [
      { id: '7', name: 'Boston fern', tag: null, exact: null },
    ]);
    t.equal(await program.post(7, 'new'), 401);
    writeFileSync(tokens, 'new\n');
    program.send('SIGHUP');
    await program.says('stderr', /tokens: accepts 1 token\n/);
    t.equal(await program.post(7, 'new'), 200);
    t.strictSame(await program.stop(), WELL);
  });

  t.test('the password file is read for each connection', async (t) => {
    const configuration = await configured(t);
    const env = { ...configuration, PLANT_STORE_DATABASE_CONNECTIONS: '1' };
    const program = await start(t, { env });
    t.match(program.stdout, '\ntoken: from PLANT_STORE_TOKEN\n');
    await cluster.sql(`ALTER ROLE client PASSWORD '${CHANGED}'`);
    t.teardown(() => cluster.sql(`ALTER ROLE client PASSWORD '${SECRET}'`));
    const name = nameIn(env);
    const connections = await cluster.sql(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '${name}'`,
    );
    t.equal(connections.length, 1);
    t.equal(await program.post(1), 503);
    await program.says('stderr', /; plants are refused until it is available again\n/);
    writeFileSync(configuration.PLANT_STORE_DATABASE_PASSWORD_FILE ?? '', CHANGED);
    while ((await program.post(1)) !== 200);
    await program.says('stderr', /: plants are stored again\n/);
    t.equal(program.stderr.split('\n').length, 3, 'each on one line, without a stack');
    t.strictSame(await program.stop(), WELL);
  });

  t.test('a database that loses plants has to be accepted', async (t) => {
    const env = await configured(t);
    const name = nameIn(env);
    await cluster.sql(`ALTER ROLE client IN DATABASE ${name} SET synchronous_commit = off`);
    const reason = 'synchronous_commit=off can lose plants';
    const stderr = [`PLANT_STORE_DATABASE_URL: 127.0.0.1:${cluster.port}/${name}: ${reason}`];
    await ends(t, { code: 1, stderr }, { env });
    const accepting = { ...env, PLANT_STORE_DATABASE_ACCEPT_DATA_LOSS: 'true' };
    const program = await start(t, { env: accepting });
    t.equal(await program.post(1), 200);
    t.strictSame(await program.stop(), WELL);
  });

  t.test('it ends in time although the database hangs', async (t) => {
    const env = await configured(t);
    const program = await start(t, {
      env,
      preload: skipTime(STOPPING.clientsMs, STOPPING.totalMs),
    });
    const hanging = await connect(t, program.port);
    await cluster.suspend(t);
    hanging.send(message());
    // The plant has been read once the next request has been answered.
    t.equal((await exchange(t, program.port, message({ method: 'GET' }))).status, 405);
    program.send('SIGTERM');
    t.equal((await hanging.answer()).status, 503);
    // It kills itself, unless the statement has been given up before.
    const ending = await program.ended;
    t.ok(ending.signal === null || ending.signal === 'SIGKILL', String(ending.signal));
  });

  t.test('it is ready while its database can store plants', async (t) => {
    const settings = await configured(t);
    const program = await start(t, { env: { ...settings, PLANT_STORE_MONITOR_PORT: '0' } });
    const [, monitor = ''] = await program.says('stdout', /^monitor: (http:.*)\n/m);
    const page = async (path: string): Promise<string> => (await fetch(monitor + path)).text();
    t.equal(await page('/readyz'), 'ok');
    t.equal(await program.post(1), 200);
    await cluster.stop();
    t.equal(await program.post(2), 503);
    t.equal(await page('/readyz'), 'unavailable');
    t.equal(await page('/livez'), 'ok');
    await cluster.start();
    await until(async () => (await page('/readyz')) === 'ok');
    t.equal(await program.post(2), 200);

    const samples = await scrape(monitor);
    t.equal(samples.get('plant_store_plants_stored_total'), 2);
    t.equal(samples.get('plant_store_commit_duration_seconds_count'), 3);
    t.equal(samples.get('plant_store_commit_failures_total'), 1);
    t.equal(samples.get('plant_store_http_responses_total{status="503",error="503"}'), 1);
    t.notOk(samples.has('plant_store_log_plants'), 'there is no log');
    t.strictSame(await program.stop(), WELL);
  });
});

t.test('no output holds a password', { skip: missing() }, async (t) => checkOutputs(t));
