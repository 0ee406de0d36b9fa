/**
 * Measures the service beside servers that do the same work or less:
 *
 *   npm run bench -- [--rounds 3] [--seconds 3] [--connections 1,16,64,256,1024,4096]
 *                    [--systems floor,plant-store,lmdb] [--folder /tmp]
 *                    [--markdown FILE] [--svg FILE]
 *
 * Every round measures every system at every number of connections, so that
 * other load on the machine affects all of them. The exit code is 0 whatever
 * the figures are, and 1 if a server fails or a plant that was answered 200 is
 * missing from its log or database.
 */

import { spawnSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { parseArgs } from 'node:util';
import { chart } from './chart.js';
import { measure, measureBareWrite } from './measure.js';
import { markdown, summarize, tables, targets, verdict } from './report.js';
import {
  count,
  installPackages,
  refuseMemory,
  requireOpenFiles,
  temporaryFolder,
} from './setup.js';
import { BARE_WRITE, SYSTEMS } from './systems.js';

try {
  const settings = readSettings(process.argv.slice(2));
  prepare(settings);
  report(await measureAll(settings), settings);
} catch (error) {
  console.error(`bench: ${error.message}`);
  process.exit(1);
}

function readSettings(args) {
  const { values } = parseArgs({
    args,
    options: {
      rounds: { type: 'string', default: '3' },
      seconds: { type: 'string', default: '3' },
      connections: { type: 'string', default: '1,16,64,256,1024,4096' },
      systems: { type: 'string', default: SYSTEMS.map(({ name }) => name).join() },
      folder: { type: 'string', default: tmpdir() },
      markdown: { type: 'string' },
      svg: { type: 'string' },
    },
  });
  const outputs = ['--markdown', '--svg'];
  const shown = args.filter((arg, n) => !outputs.includes(arg) && !outputs.includes(args[n - 1]));
  return {
    ...values,
    rounds: count('rounds', values.rounds),
    seconds: count('seconds', values.seconds),
    connections: values.connections.split(',').map((text) => count('connections', text)),
    systems: values.systems.split(',').map(systemNamed),
    command: ['npm run bench', ...(shown.length > 0 ? ['--', ...shown] : [])].join(' '),
  };
}

function systemNamed(name) {
  const system = SYSTEMS.find((known) => known.name === name);
  if (system !== undefined) return system;
  throw new Error(`--systems: ${name} is none of ${SYSTEMS.map((known) => known.name).join()}`);
}

function prepare({ connections, folder, systems }) {
  if (spawnSync('wrk', ['--version']).error !== undefined) {
    throw new Error('wrk is not installed (Debian, Ubuntu: apt-get install wrk)');
  }
  const missing = systems.find(({ script }) => !existsSync(script));
  if (missing !== undefined) throw new Error(`${missing.script} is missing: npm run build`);
  refuseMemory(folder);
  requireOpenFiles(Math.max(...connections));
  installPackages();
}

async function measureAll(settings) {
  const folder = temporaryFolder(settings.folder);
  const measurements = [];
  for (let round = 1; round <= settings.rounds; round++) {
    for await (const measurement of measureRound(settings, folder, round)) {
      const { name, connections, rate } = measurement;
      const result = `${name} ${Math.round(rate).toLocaleString('en')}/s`;
      console.error(`round ${round} of ${settings.rounds}, connections ${connections}: ${result}`);
      measurements.push({ round, ...measurement });
    }
  }
  return measurements;
}

/** Each round starts with another system. */
async function* measureRound({ connections: counts, seconds, systems }, folder, round) {
  const first = (round - 1) % systems.length;
  const order = [...systems.slice(first), ...systems.slice(0, first)];
  for (const connections of counts) {
    if (connections === 1) {
      yield { name: BARE_WRITE, connections, ...(await measureBareWrite(seconds, folder)) };
    }
    for (const system of order) {
      const figures = await measure(system, connections, seconds, folder);
      yield { name: system.name, connections, ...figures };
    }
  }
}

function report(measurements, settings) {
  const summary = summarize(measurements);
  console.log(tables(summary, settings.connections).join('\n'));
  console.log(targets(summary).map(verdict).join('\n'));
  if (settings.markdown !== undefined)
    writeFileSync(settings.markdown, markdown(summary, settings));
  if (settings.svg !== undefined) writeFileSync(settings.svg, chart(summary, settings.connections));
}
