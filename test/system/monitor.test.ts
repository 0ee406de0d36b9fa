import { statSync } from 'node:fs';

import t, { type Test } from 'tap';

import { DEFAULT_LIMITS } from '../../dist/http/limits.js';
import { nodeSystem } from '../../dist/log/system.js';
import { connect, exchange, FERN, message } from '../client.js';
import { createGate, type Gate } from '../log/support.js';
import { scrape } from '../metrics.js';
import { until } from '../postgres/cluster.js';
import { freePort } from '../service.js';
import { DONE, ENV, launchHere, serving, startHere, type Program } from './program.js';

/** Starts the program with a monitor, and resolves to the URL of that, too. */
async function startMonitored(
  t: Test,
  settings = {},
): Promise<Program & { readonly monitor: string }> {
  const env = { ...ENV, PLANT_STORE_MONITOR_PORT: '0', ...settings };
  const program = await startHere(t, { env });
  const [, monitor = ''] = await program.says('stdout', /^monitor: (http:.*)\n/m);
  return Object.assign(program, { monitor });
}

/** Lets the files that a log opens from now on wait at a gate. */
function holdOpening(t: Test): Gate {
  const gate = createGate();
  const open = nodeSystem.open.bind(nodeSystem);
  const value: typeof open = (...args) => gate.pass().then(() => open(...args));
  t.intercept(nodeSystem, 'open', { value });
  return gate;
}

/** The page of a monitor: its status and its content. */
async function page(monitor: string, path: string): Promise<[status: number, body: string]> {
  const answer = await fetch(`${monitor}${path}`);
  return [answer.status, await answer.text()];
}

t.test('the responses that are counted are those that clients got', async (t) => {
  const program = await startMonitored(t);
  const total = (status: number, error: number): string =>
    `plant_store_http_responses_total{status="${status}",error="${error}"}`;
  // These are there from the start: a counter that appears with its first event has no rate until the second one.
  const sent: Record<string, number> = {
    [total(200, 0)]: 0,
    [total(500, 500)]: 0,
    [total(503, 503)]: 0,
  };
  const requests = [
    message(),
    message(),
    message({ body: FERN.replace('7', '8') }),
    message({ body: '{}' }),
    message({ headers: { Authorization: undefined } }),
    message({ headers: { Expect: 'more' } }),
    Buffer.from('this is not HTTP\r\n\r\n'),
  ];
  for (const request of requests) {
    const { status, body } = await exchange(t, program.port, request);
    const { error = 0 } = JSON.parse(body) as { error?: number };
    const name = total(status, error);
    sent[name] = (sent[name] ?? 0) + 1;
  }
  const samples = await scrape(program.monitor);
  const counted = [...samples].filter(([name]) =>
    name.startsWith('plant_store_http_responses_total'),
  );
  t.strictSame(Object.fromEntries(counted), sent);
  const UNPARSED = 1;
  let measured = 0;
  for (const [name, count] of samples)
    if (name.startsWith('plant_store_http_request_duration_seconds_count')) measured += count;
  t.equal(measured, requests.length - UNPARSED);
  t.equal(samples.get('plant_store_plants_stored_total'), 2);
  t.equal(samples.get('plant_store_commit_duration_seconds_count'), 2);
  t.equal(samples.get('plant_store_commit_failures_total'), 0);
  t.equal(samples.get('plant_store_log_plants'), 2);
  t.equal(samples.get('plant_store_log_size_bytes'), statSync(program.log).size);
});

t.test('requests in flight and connections are counted, also those that end early', async (t) => {
  const program = await startMonitored(t, { PLANT_STORE_MAX_CONNECTIONS: '1' });
  const reaches = (name: string, value: number): Promise<void> =>
    until(async () => (await scrape(program.monitor)).get(`plant_store_${name}`) === value);
  const client = await connect(t, program.port);
  client.send(message().subarray(0, -5));
  await t.resolves(reaches('http_requests_in_flight', 1));
  const another = await connect(t, program.port);
  await another.closed;
  const samples = await scrape(program.monitor);
  t.ok(samples.get('plant_store_buffered_bytes'));
  t.equal(samples.get('plant_store_connections'), 1);
  t.equal(samples.get('plant_store_connections_limit'), 1);
  t.equal(samples.get('plant_store_buffered_bytes_limit'), DEFAULT_LIMITS.maxBufferedBytes);
  client.socket.destroy();
  for (const name of ['http_requests_in_flight', 'connections', 'buffered_bytes'])
    await t.resolves(reaches(name, 0));
  await t.resolves(reaches('connections_dropped_total', 1));
});

t.test('the program is starting, ready, and stopping', async (t) => {
  const port = await freePort();
  const monitor = `http://127.0.0.1:${port}`;
  const opening = holdOpening(t);
  const program = launchHere(t, { env: { ...ENV, PLANT_STORE_MONITOR_PORT: `${port}` } });
  await opening.reached;
  t.strictSame(await page(monitor, '/readyz'), [503, 'starting']);
  t.strictSame(await page(monitor, '/livez'), [200, 'ok']);
  const starting = await scrape(monitor);
  t.notOk(starting.has('plant_store_connections'));
  t.notOk(starting.has('plant_store_log_plants'));

  opening.open();
  const served = await serving(program, ENV.PLANT_STORE_TOKEN);
  t.strictSame(await page(monitor, '/readyz'), [200, 'ok']);

  const client = await connect(t, served.port);
  const request = message({ headers: { Expect: '100-continue' } });
  client.send(request.subarray(0, -5));
  t.match(await client.answer(), { status: 100 });
  const ended = served.stop('SIGTERM');
  await until(async () => (await page(monitor, '/readyz'))[0] === 503);
  t.strictSame(await page(monitor, '/readyz'), [503, 'stopping']);
  t.strictSame(await page(monitor, '/livez'), [200, 'ok']);
  const stopping = await scrape(monitor);
  t.equal(stopping.get('plant_store_log_plants'), 0);
  client.send(request.subarray(-5));
  t.match(await client.answer(), { status: 200 });
  t.strictSame(await ended, DONE);
});
