/*
 * Sends the built program what a hostile client would, and looks whether it keeps its promises:
 *
 *     node .test/hostile/run.js [fuzz] [floods] [slow] [timing] [secrets]
 *                               [--cases N] [--seed N] [--short]
 *
 * All parts where none is named. N is how many connections the fuzz makes. With --short, floods and
 * slow clients are fewer, and none of them takes longer than half a minute.
 */
import { accessSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { parseArgs } from 'node:util';

import type { Case } from '../faults/case.js';
import { floodCases } from './floods.js';
import { fuzzCases } from './fuzz.js';
import { secretCases } from './secrets.js';
import { slowCases } from './slow.js';
import { timingCases } from './timing.js';

const HANGS_MS = 300_000;
const CASES = 10_000;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    cases: { type: 'string' },
    seed: { type: 'string' },
    short: { type: 'boolean', default: false },
  },
});
const cases = Number(values.cases ?? CASES);
if (!(Number.isInteger(cases) && cases > 0)) throw new RangeError('--cases: must be positive');
const seed = Number(values.seed ?? Math.floor(Math.random() * 2 ** 31));

const parts: Readonly<Record<string, readonly Case[]>> = {
  fuzz: fuzzCases({ cases, seed }),
  floods: floodCases(values.short),
  slow: slowCases(values.short),
  timing: timingCases,
  secrets: secretCases,
};

function has(command: string): boolean {
  return (process.env.PATH ?? '').split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, command));
      return true;
    } catch {
      return false;
    }
  });
}

async function check({ promise, needs = [], check }: Case, folder: string): Promise<boolean> {
  const missing = needs.filter((need) => !has(need));
  if (missing.length > 0) {
    console.log(`SKIP   ${promise}: needs ${missing.join(', ')}`);
    return true;
  }
  mkdirSync(folder);
  const startedAt = performance.now();
  const watch = setTimeout(
    () => {
      console.log(`BROKEN ${promise}: it hangs`);
      process.exit(1);
    },
    HANGS_MS + 10 * cases,
  );
  try {
    const seen = await check(folder);
    const seconds = ((performance.now() - startedAt) / 1_000).toFixed(1);
    console.log(`ok     ${promise} (${seen}; ${seconds} s)`);
    return true;
  } catch (error) {
    console.log(`BROKEN ${promise}:`, error);
    return false;
  } finally {
    clearTimeout(watch);
  }
}

const folder = mkdtempSync(join(tmpdir(), 'plant-store-hostile-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
process.on('SIGINT', () => process.exit(1));
process.on('SIGTERM', () => process.exit(1));

let broken = 0;
for (const part of positionals.length > 0 ? positionals : Object.keys(parts)) {
  const promises = parts[part];
  if (!promises) throw new Error(`${part}: is none of ${Object.keys(parts).join(', ')}`);
  for (const [n, each] of promises.entries())
    if (!(await check(each, join(folder, `${part}-${n}`)))) broken++;
}
console.log(broken === 0 ? 'all promises are kept' : `${broken} promises are broken`);
process.exit(broken === 0 ? 0 : 1);
