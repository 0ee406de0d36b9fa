import t from 'tap';

import { TOKEN } from '../client.js';
import { scrape } from '../metrics.js';
import { missing, startCluster, until } from './cluster.js';
import { start, WELL } from './program.js';

t.test(
  'the program is ready while its database can store plants',
  { skip: missing() },
  async (t) => {
    const cluster = await startCluster(t);
    const env = {
      PLANT_STORE_DATABASE_URL: await cluster.createSchema(),
      PLANT_STORE_TOKEN: TOKEN,
      PLANT_STORE_MONITOR_PORT: '0',
    };
    const program = await start(t, { env });
    const [, monitor = ''] = await program.says('stdout', /^monitor: (http:.*)\n/m);
    const ready = async (): Promise<number | undefined> =>
      (await scrape(monitor)).get('plant_store_ready');
    const readiness = async (): Promise<string> => {
      const answer = await fetch(`${monitor}/readyz`);
      return `${answer.status} ${await answer.text()}`;
    };

    t.equal(await readiness(), '200 ok');
    t.equal(await program.post(1), 200);
    t.equal(await ready(), 1);
    await cluster.stop();
    t.equal(await ready(), 1, 'a scrape does not ask the database');
    t.equal(await program.post(2), 503);
    await until(async () => (await ready()) === 0);
    t.equal(await readiness(), '503 unavailable');
    t.equal(await (await fetch(`${monitor}/livez`)).text(), 'ok');
    await cluster.start();
    await until(async () => (await readiness()) === '200 ok');
    t.equal(await ready(), 1);
    t.equal(await program.post(2), 200);
    await cluster.sql('ALTER SYSTEM SET default_transaction_read_only = on');
    await cluster.sql('SELECT pg_reload_conf()');
    await until(async () => (await readiness()) === '503 unavailable');

    const samples = await scrape(monitor);
    t.equal(samples.get('plant_store_plants_stored_total'), 2);
    t.equal(samples.get('plant_store_commit_duration_seconds_count'), 3);
    t.equal(samples.get('plant_store_commit_failures_total'), 1);
    t.equal(samples.get('plant_store_http_responses_total{status="503",error="503"}'), 1);
    t.notOk(samples.has('plant_store_log_plants'), 'there is no log');
    t.strictSame(await program.stop(), WELL);
  },
);

t.test('a statement that does not return is seen', { skip: missing() }, async (t) => {
  const cluster = await startCluster(t);
  const env = {
    PLANT_STORE_DATABASE_URL: await cluster.createSchema(),
    PLANT_STORE_TOKEN: TOKEN,
    PLANT_STORE_MONITOR_PORT: '0',
  };
  const program = await start(t, { env });
  const [, monitor = ''] = await program.says('stdout', /^monitor: (http:.*)\n/m);
  const seconds = async (): Promise<number> =>
    (await scrape(monitor)).get('plant_store_commit_running_seconds') ?? NaN;
  t.equal(await seconds(), 0);
  const backends = await cluster.sql(
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'plant-store'",
  );
  const send = (signal: NodeJS.Signals): void => {
    for (const { pid } of backends) process.kill(Number(pid), signal);
  };
  send('SIGSTOP');
  const status = program.post(1);
  await until(async () => (await seconds()) > 0.1);
  send('SIGCONT');
  t.ok([200, 503].includes(await status), 'the machine may be slower than the timeout');
  t.equal(await seconds(), 0);
});
