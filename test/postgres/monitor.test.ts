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
    const readiness = async (): Promise<string> => {
      const answer = await fetch(`${monitor}/readyz`);
      return `${answer.status} ${await answer.text()}`;
    };

    t.equal(await readiness(), '200 ok');
    t.equal(await program.post(1), 200);
    await cluster.stop();
    t.equal(await program.post(2), 503);
    t.equal(await readiness(), '503 unavailable');
    t.equal(await (await fetch(`${monitor}/livez`)).text(), 'ok');
    await cluster.start();
    await until(async () => (await readiness()) === '200 ok');
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
