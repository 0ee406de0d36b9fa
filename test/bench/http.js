/**
 * Measures the service beside what others would run, servers with group commit and one that stores
 * nothing, or beside another build of it:
 *
 *   npm run bench http -- [--rounds 12] [--turns 2] [--seconds 1] [--connections 16,64,256,1024]
 *                    [--systems floor,plant-store,by-hand,../before/dist/server.js] [--folder /tmp]
 *                    [--markdown FILE] [--svg FILE]
 *
 * For the systems with PostgreSQL, it starts a server in a temporary folder; TMPDIR chooses the
 * disk.
 *
 * The exit code is 0 whatever the figures are, and 1 if a server fails, a request is not answered
 * with 200, or a plant that was answered 200 is missing from its log or database.
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

const teardowns = [];
try {
  const given = readSettings(process.argv.slice(2));
  check(given);
  const settings = { ...given, systems: await withDatabases(given.systems) };
  report(await measureRounds(settings, temporaryFolder(settings.folder)), settings);
} catch (error) {
  console.error(`bench: ${error.message}`);
  process.exitCode = 1;
} finally {
  for (const teardown of teardowns.reverse()) await teardown();
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
    command: ['npm run bench http', ...(shown.length > 0 ? ['--', ...shown] : [])].join(' '),
  };
}

/** A name that is a path stands for another build of the service. */
function systemNamed(name) {
  const system = SYSTEMS.find((known) => known.name === (name.includes('/') ? OURS : name));
  if (system === undefined)
    throw new Error(`--systems: ${name} is none of ${SYSTEMS.map((known) => known.name).join()}`);
  return name.includes('/') ? { ...system, name, title: name, script: resolve(name) } : system;
}

function check({ connections, folder, systems }) {
  if (spawnSync('wrk', ['--version']).error !== undefined) {
    throw new Error('wrk is not installed (Debian, Ubuntu: apt-get install wrk)');
  }
  const missing = systems.find(({ script }) => !existsSync(script));
  if (missing !== undefined) throw new Error(`${missing.script} is missing: npm run build`);
  for (const disk of [folder, tmpdir()]) refuseMemory(disk);
  requireOpenFiles(Math.max(...connections));
  installPackages();
}

/** Gives a database to each system that needs one. */
async function withDatabases(systems) {
  if (systems.every(({ database }) => database === undefined)) return systems;
  const { createDatabases } = await import('./database.js');
  return createDatabases(systems, { teardown: (callback) => teardowns.push(callback) });
}

function report(measurements, settings) {
  const summary = summarize(measurements);
  console.log(tables(summary, settings).join('\n'));
  console.log(targets(summary).map(verdict).join('\n'));
  if (settings.markdown !== undefined)
    writeFileSync(settings.markdown, markdown(summary, settings));
  if (settings.svg !== undefined) writeFileSync(settings.svg, chart(summary, settings));
}
