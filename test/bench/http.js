/**
 * Measures the service beside servers that do the same work or less, or beside another build of it:
 *
 *   npm run bench -- [--rounds 12] [--turns 2] [--seconds 1] [--connections 16,64,256,1024]
 *                    [--systems floor,plant-store,lmdb,../before/dist/server.js] [--folder /tmp]
 *                    [--markdown FILE] [--svg FILE]
 *
 * The exit code is 0 whatever the figures are, and 1 if a server fails, a request is not answered with 200, or a plant
 * that was answered 200 is missing from its log or database.
 */

import { spawnSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { chart } from './chart.js';
import { measureRounds } from './measure.js';
import { markdown, summarize, tables, targets, verdict } from './report.js';
import {
  count,
  installPackages,
  refuseMemory,
  requireOpenFiles,
  temporaryFolder,
} from './setup.js';
import { OURS, SYSTEMS } from './systems.js';

try {
  const settings = readSettings(process.argv.slice(2));
  prepare(settings);
  report(await measureRounds(settings, temporaryFolder(settings.folder)), settings);
} catch (error) {
  console.error(`bench: ${error.message}`);
  process.exit(1);
}

function readSettings(args) {
  const { values } = parseArgs({
    args,
    options: {
      rounds: { type: 'string', default: '12' },
      turns: { type: 'string', default: '2' },
      seconds: { type: 'string', default: '1' },
      connections: { type: 'string', default: '16,64,256,1024' },
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
    turns: count('turns', values.turns),
    seconds: count('seconds', values.seconds),
    connections: values.connections.split(',').map((text) => count('connections', text)),
    systems: values.systems.split(',').map(systemNamed),
    command: ['npm run bench', ...(shown.length > 0 ? ['--', ...shown] : [])].join(' '),
  };
}

/** What is a path is another build of the service. */
function systemNamed(name) {
  const system = SYSTEMS.find((known) => known.name === (name.includes('/') ? OURS : name));
  if (system === undefined)
    throw new Error(`--systems: ${name} is none of ${SYSTEMS.map((known) => known.name).join()}`);
  return name.includes('/') ? { ...system, name, title: name, script: resolve(name) } : system;
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

function report(measurements, settings) {
  const summary = summarize(measurements);
  console.log(tables(summary, settings).join('\n'));
  console.log(targets(summary).map(verdict).join('\n'));
  if (settings.markdown !== undefined)
    writeFileSync(settings.markdown, markdown(summary, settings));
  if (settings.svg !== undefined) writeFileSync(settings.svg, chart(summary, settings));
}
