/*
 * Breaks what the program stands on, and looks whether it keeps its promises:
 *
 *     node .test/faults/run.js [--rounds N] [--short]
 *
 * N is how often power is cut; --short leaves out what is least likely to break. As root, all of it
 * runs in namespaces of its own: however it ends, its mounts, loop devices and processes end with it.
 */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect, parseArgs } from 'node:util';

import { CannotRun, type Case, type Extent } from './case.js';
import { meddlingCases } from './meddling.js';
import { outsideCases } from './outside.js';
import { powerCutCases } from './power-cut.js';

const { values } = parseArgs({
  options: { rounds: { type: 'string' }, short: { type: 'boolean', default: false } },
});
const rounds = Number(values.rounds ?? (values.short ? 3 : 20));
if (!(Number.isInteger(rounds) && rounds > 0)) throw new RangeError('--rounds: must be positive');
const extent: Extent = { rounds, everyCall: !values.short };

const cases: readonly Case[] = [
  ...outsideCases(extent),
  ...meddlingCases,
  ...powerCutCases(extent),
];
/** How many cases run at a time. */
const WORKERS = 2;
const HANGS_MS = 300_000 + 10_000 * rounds;

/** The name of the variable with the folder for all that is written. */
const FOLDER = 'PLANT_STORE_FAULTS_FOLDER';
const NAMESPACES = ['unshare', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc'];

/** The commands that succeed where a need is met. */
const PROBES: Record<string, readonly string[]> = {
  root: [...NAMESPACES, 'true'],
  'loop devices': ['test', '-e', '/dev/loop-control'],
  strace: ['strace', '-o', '/dev/null', 'true'],
};

function has(need: string): boolean {
  const [file = '', ...args] = PROBES[need] ?? ['sh', '-c', 'command -v "$0"', need];
  return spawnSync(file, args).status === 0;
}

const broken: string[] = [];
const skipped: string[] = [];

async function look({ promise, needs = [], check }: Case, folder: string): Promise<void> {
  function tell(word: string, about: string): void {
    console.log(`${word.padEnd(6)} ${promise}: ${about}`);
  }

  const missing = needs.filter((need) => !has(need));
  const startedAt = performance.now();
  const watch = setTimeout(() => {
    tell('BROKEN', 'it hangs');
    process.exit(1);
  }, HANGS_MS);
  try {
    if (missing.length > 0) throw new CannotRun(`needs ${missing.join(', ')}`);
    mkdirSync(folder);
    const seen = await check(folder);
    tell('ok', `${seen}; ${((performance.now() - startedAt) / 1_000).toFixed(1)} s`);
  } catch (error) {
    const cannotRun = error instanceof CannotRun;
    tell(cannotRun ? 'SKIP' : 'BROKEN', cannotRun ? error.message : inspect(error));
    (cannotRun ? skipped : broken).push(promise);
  } finally {
    clearTimeout(watch);
  }
}

async function lookAtAll(folder: string): Promise<never> {
  process.on('SIGINT', () => process.exit(1));
  process.stdin.on('end', () => process.exit(1)).resume();
  const queue = [...cases.entries()];
  async function work(): Promise<void> {
    for (let next = queue.shift(); next; next = queue.shift())
      await look(next[1], join(folder, String(next[0])));
  }
  await Promise.all(Array.from({ length: WORKERS }, work));
  const kept = cases.length - broken.length - skipped.length;
  console.log(`${kept} promises kept, ${broken.length} broken, ${skipped.length} skipped`);
  process.exit(broken.length === 0 ? 0 : 1);
}

/** Runs this program again, by itself or in namespaces, with a folder that is removed afterwards. */
async function runInside(command: readonly string[]): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), 'plant-store-faults-'));
  const [file = '', ...args] = [...command, process.execPath, ...process.argv.slice(1)];
  const child = spawn(file, args, {
    env: { ...process.env, [FOLDER]: folder },
    stdio: ['pipe', 'inherit', 'inherit'],
  });
  // What runs inside ends when this does, whatever ends it.
  process.on('SIGINT', () => child.stdin.end());
  process.on('SIGTERM', () => child.stdin.end());
  const [code] = (await once(child, 'exit')) as [number | null];
  rmSync(folder, { recursive: true, force: true });
  return code ?? 1;
}

const folder = process.env[FOLDER];
if (folder === undefined) process.exitCode = await runInside(has('root') ? NAMESPACES : []);
else await lookAtAll(folder);
