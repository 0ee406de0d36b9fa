import { strict as assert } from 'node:assert';
import { execFileSync } from 'node:child_process';
import {
  closeSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  renameSync,
  statSync,
  truncateSync,
  unlinkSync,
  writeFileSync,
  fstatSync,
} from 'node:fs';
import { dirname, join } from 'node:path';

import type { Case } from './case.js';
import { createLedger, startLoad, type Ledger, type Plant } from './ledger.js';
import { serve, stop } from './program.js';

/** What somebody else does to the log, and what they leave of the file that the program has open. */
interface Meddling {
  readonly what: string;
  readonly meddle: (log: string) => void;
  /** What the file holds then, of what it held before. */
  readonly left: (before: Buffer) => Buffer;
  /** Whether all plants are still where the log should be. */
  readonly keepsPlants?: true;
}

const unchanged = (before: Buffer): Buffer => before;

const MEDDLINGS: readonly Meddling[] = [
  {
    what: 'replaced',
    meddle(log) {
      renameSync(log, `${log}.old`);
      writeFileSync(log, '');
    },
    left: unchanged,
  },
  {
    what: 'replaced by a copy of itself',
    meddle(log) {
      writeFileSync(`${log}.copy`, readFileSync(log));
      renameSync(`${log}.copy`, log);
    },
    left: unchanged,
  },
  { what: 'moved away', meddle: (log) => renameSync(log, `${log}.old`), left: unchanged },
  {
    what: 'moved away with its folder',
    meddle: (log) => renameSync(dirname(log), `${dirname(log)}.old`),
    left: unchanged,
  },
  { what: 'removed', meddle: unlinkSync, left: unchanged },
  {
    what: 'cut in the middle of a line',
    meddle: (log) => truncateSync(log, statSync(log).size - 5),
    left: (before) => before.subarray(0, -5),
  },
  { what: 'emptied', meddle: (log) => truncateSync(log, 0), left: () => Buffer.alloc(0) },
  {
    what: 'appended to',
    meddle: (log) => void execFileSync('sh', ['-c', 'echo x >> "$0"', log]),
    left: (before) => Buffer.concat([before, Buffer.from('x\n')]),
    keepsPlants: true,
  },
];

export const meddlingCases: readonly Case[] = [
  ...MEDDLINGS.map((meddling): Case => ({
    promise: `a log that is ${meddling.what} takes no plant: 503, the program ends with 1`,
    check: (folder) => isRefused(folder, meddling, (ledger) => ledger.next()),
  })),
  ...MEDDLINGS.filter(({ keepsPlants }) => !keepsPlants).map((meddling): Case => ({
    promise: `a plant in a log that is ${meddling.what} is not acknowledged again: the same`,
    check: (folder) => isRefused(folder, meddling, (_, stored) => stored),
  })),
  {
    promise: 'a clock that jumps by years changes nothing',
    needs: ['faketime'],
    async check(folder) {
      const ledger = createLedger();
      const log = join(folder, 'plants.jsonl');
      const clock = join(folder, 'clock');
      writeFileSync(clock, '-3650d');
      const server = await serve({ log, environment: fakeClock(clock) });
      const { headers } = await fetch(`http://127.0.0.1:${server.serves}/`);
      const date = headers.get('date') ?? assert.fail('there is no date');
      assert.ok(Date.parse(date) < Date.now() - 1e11, 'the clock is another');
      const jumps = ['+3650d', '-3650d', '+36500d', '-1', '+0'];
      for (const jump of jumps) {
        const load = startLoad(ledger, server, { plants: 300 });
        await load.reached(100);
        writeFileSync(clock, jump);
        await load.ended;
      }
      assert.deepEqual([...ledger.statuses.keys()], [200], 'every plant is answered with 200');
      await stop(server);
      ledger.check(log);
      return `${date}, then ${jumps.join(', ')}`;
    },
  },
  {
    promise: 'nothing in the program asks for the time of day',
    async check() {
      const names = readdirSync('src', { recursive: true, encoding: 'utf8' });
      const sources = names.filter((name) => name.endsWith('.ts'));
      assert.ok(sources.length > 10);
      for (const name of sources)
        assert.doesNotMatch(readFileSync(join('src', name), 'utf8'), /\bDate\b/, name);
      return `${sources.length} files`;
    },
  },
];

/** Meddles with the log of a program that serves, and sends it a plant. */
async function isRefused(
  folder: string,
  { meddle, left }: Meddling,
  choose: (ledger: Ledger, stored: Plant) => Plant,
): Promise<string> {
  const ledger = createLedger();
  const log = join(folder, 'data', 'plants.jsonl');
  const server = await serve({ log });
  const stored = ledger.next();
  assert.equal(await ledger.post(server, stored), 200);
  await startLoad(ledger, server, { plants: 100 }).ended;
  const file = openSync(log, 'r');
  const before = contentOf(file);
  ledger.check(before);

  meddle(log);
  assert.equal(await ledger.post(server, choose(ledger, stored)), 503);
  const { how, stderr } = await server.ended;
  assert.equal(how, 1, stderr);
  assert.match(stderr, /changed by somebody else|was changed|no such file/);
  assert.ok(contentOf(file).equals(left(before)), 'the program has written nothing more');
  closeSync(file);
  return `${ledger.acknowledged} plants before`;
}

function contentOf(file: number): Buffer {
  const content = Buffer.alloc(fstatSync(file).size);
  assert.equal(readSync(file, content, 0, content.length, 0), content.length);
  return content;
}

/** Makes a program's wall clock follow a file; its monotonic clock, which cannot jump, stays. */
function fakeClock(file: string): NodeJS.ProcessEnv {
  const printed = execFileSync('faketime', ['-f', '+0', 'printenv', 'LD_PRELOAD']);
  return {
    LD_PRELOAD: printed.toString().trim(),
    FAKETIME_TIMESTAMP_FILE: file,
    FAKETIME_NO_CACHE: '1',
    FAKETIME_DONT_FAKE_MONOTONIC: '1',
    DONT_FAKE_MONOTONIC: '1',
  };
}
