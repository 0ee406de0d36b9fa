/**
 * Measures the longest pause that clients see when tokens are read again, when many clients connect
 * at once, and when the program stops:
 *
 *   npm run bench:pauses -- [--rounds 5] [--seconds 2] [--connections 64] [--storm 1000]
 *                           [--folder /tmp] [--markdown FILE]
 *
 * Each connection sends a plant as soon as the one before is answered. After a warm-up, one of these
 * events happens, or none, and what follows it is measured. Every measurement starts a new server.
 * The exit code is 0 whatever the figures are, and 1 if a request is not answered with 200.
 */

import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { cpus, release, tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { start, TOKEN } from './measure.js';
import { openConnection } from './pauses/connection.js';
import { aligned, median, significant, whole } from './report.js';
import { count, refuseMemory, requireOpenFiles, temporaryFolder } from './setup.js';
import { OURS, SYSTEMS } from './systems.js';

const WARM_UP_MS = 3000;
const STORM_FIRST_ID = 1e9;
const STORM_SCRIPT = join(import.meta.dirname, 'pauses', 'storm.js');

/** `trigger` resolves once the event is over: to the longest time that a client of a storm has waited. */
const EVENTS = [
  { name: 'none', trigger: async () => undefined },
  {
    name: 'SIGHUP',
    async trigger({ child, errors }) {
      child.kill('SIGHUP');
      for await (const line of errors) if (line.includes('accepts 1 token')) return;
    },
  },
  {
    name: 'storm',
    async prepare({ port }, { storm }) {
      const args = [STORM_SCRIPT, port, TOKEN, storm, STORM_FIRST_ID];
      const child = start(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] });
      const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
      await lines.next();
      return async () => {
        child.stdin.write('\n');
        const { value, done } = await lines.next();
        if (done) throw new Error('a connection of the storm failed');
        return Number(value);
      };
    },
  },
  {
    name: 'SIGTERM',
    async trigger({ child, ended }) {
      child.kill('SIGTERM');
      const [code] = await ended;
      if (code !== 0) throw new Error(`the server ended with ${code} after SIGTERM`);
    },
  },
];

try {
  const settings = readSettings(process.argv.slice(2));
  refuseMemory(settings.folder);
  requireOpenFiles(settings.connections + settings.storm);
  report(await measureAll(settings), settings);
  process.exit();
} catch (error) {
  console.error(`bench: ${error.message}`);
  process.exit(1);
}

function readSettings(args) {
  const { values } = parseArgs({
    args,
    options: {
      rounds: { type: 'string', default: '5' },
      seconds: { type: 'string', default: '2' },
      connections: { type: 'string', default: '64' },
      storm: { type: 'string', default: '1000' },
      folder: { type: 'string', default: tmpdir() },
      markdown: { type: 'string' },
    },
  });
  return {
    ...values,
    rounds: count('rounds', values.rounds),
    seconds: count('seconds', values.seconds),
    connections: count('connections', values.connections),
    storm: count('storm', values.storm),
  };
}

/** Each round starts with another event. */
async function measureAll(settings) {
  const parent = temporaryFolder(settings.folder);
  const order = [...EVENTS];
  const measurements = [];
  for (let round = 1; round <= settings.rounds; round++) {
    for (const event of order) {
      const figures = await measure(event, parent, settings);
      const longest = `${significant(figures.request)} ms`;
      console.error(`round ${round} of ${settings.rounds}, ${event.name}: ${longest}`);
      measurements.push({ name: event.name, ...figures });
    }
    order.push(order.shift());
  }
  return measurements;
}

async function measure(event, parent, settings) {
  const folder = await mkdtemp(join(parent, 'pauses-'));
  const server = await startServer(folder);
  const load = startLoad(server.port, settings.connections);
  try {
    return await Promise.race([observe(event, server, load, settings), load.failed]);
  } finally {
    server.child.kill('SIGKILL');
    await server.ended;
    await rm(folder, { recursive: true });
  }
}

async function observe(event, server, load, settings) {
  const trigger = (await event.prepare?.(server, settings)) ?? (() => event.trigger(server));
  await sleep(WARM_UP_MS);
  load.reset();
  const time = sleep(settings.seconds * 1000);
  const storm = await trigger();
  await time;
  const figures = { ...load.longest, storm };
  load.stop();
  return figures;
}

async function startServer(folder) {
  await writeFile(join(folder, 'token'), `${TOKEN}\n`);
  const { script } = SYSTEMS.find(({ name }) => name === OURS);
  const child = start(process.execPath, [script], {
    env: {
      PATH: process.env.PATH,
      NODE_ENV: 'production',
      PLANT_STORE_PORT: '0',
      PLANT_STORE_FILE: join(folder, 'plants.jsonl'),
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const ended = once(child, 'exit');
  const [output] = await once(child.stdout, 'data');
  const [, port] = /\bhttp:\/\/\S+:(\d+)/.exec(output);
  return { child, ended, port: Number(port), errors: createInterface({ input: child.stderr }) };
}

/**
 * Sends plants until `stop` is called, or the server closes the connections after their answers.
 * `failed` rejects if a request is not answered with 200.
 */
function startLoad(port, connections) {
  let fail;
  const failed = new Promise((_, reject) => (fail = reject));
  const longest = { request: 0, gap: 0 };
  let answeredAt = performance.now();
  let nextId = 1;
  let stopped = false;

  for (let n = 0; n < connections; n++) {
    let sentAt;
    const send = (connection) => {
      sentAt = performance.now();
      connection.send(nextId++);
    };
    openConnection(
      { port, token: TOKEN },
      {
        onConnect: send,
        onFailure(error) {
          if (!stopped) fail(error);
        },
        onAnswer(connection, isOpen) {
          const now = performance.now();
          longest.request = Math.max(longest.request, now - sentAt);
          longest.gap = Math.max(longest.gap, now - answeredAt);
          answeredAt = now;
          if (isOpen && !stopped) send(connection);
        },
      },
    );
  }
  return {
    longest,
    failed,
    reset: () => Object.assign(longest, { request: 0, gap: 0 }),
    stop: () => (stopped = true),
  };
}

function report(measurements, { rounds, seconds, connections, storm, markdown }) {
  const figure = (event, name) =>
    significant(median(measurements.filter((one) => one.name === event).map((one) => one[name])));
  const row = (title, event) => [title, figure(event, 'request'), figure(event, 'gap')];
  const table = aligned([
    ['event', 'longest request ms', 'longest time without an answer ms'],
    row('none', 'none'),
    row('SIGHUP', 'SIGHUP'),
    row(`${whole(storm)} more connections`, 'storm'),
    ['the new connections themselves', figure('storm', 'storm'), ''],
    row('SIGTERM', 'SIGTERM'),
  ]);
  console.log(table);
  if (markdown === undefined) return;
  writeFileSync(
    markdown,
    `# Results with events under load

${table}
Medians of ${rounds} interleaved rounds with ${connections} connections. Every request was answered with 200. Client and server
share one machine: ${cpus()[0].model}, ${cpus().length} cores, Linux ${release().split('-', 1)}, Node ${process.versions.node}.

- longest request: the longest time from sending a plant to its answer, in the ${seconds} s after the event; for SIGTERM, up to
  the last answer
- longest time without an answer: on all connections together
- the new connections themselves: from opening all of them at once to the last answer

Measured with

    npm run bench:pauses -- --rounds ${rounds} --seconds ${seconds} --connections ${connections} --storm ${storm}
`,
  );
}
