/* A log that another process changes while the program serves. */
import { strict as assert } from 'node:assert';
import { execFileSync } from 'node:child_process';
import {
  closeSync,
  fstatSync,
  openSync,
  readFileSync,
  readSync,
  renameSync,
  statSync,
  truncateSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';

import t, { type Test } from 'tap';

import { start } from '../system/program.js';
import { createLedger, startLoad, type Ledger, type Plant } from './ledger.js';
import { settingsFor } from './support.js';

interface Change {
  readonly what: string;
  readonly apply: (log: string) => void;
  /** The content of the file that the program has open, after the change. */
  readonly left: (before: Buffer) => Buffer;
  /** Whether the path of the log still leads to all plants. */
  readonly keepsPlants?: true;
}

const unchanged = (before: Buffer): Buffer => before;

const CHANGES: readonly Change[] = [
  {
    what: 'replaced',
    apply(log) {
      renameSync(log, `${log}.old`);
      writeFileSync(log, '');
    },
    left: unchanged,
  },
  {
    what: 'replaced by a copy of itself',
    apply(log) {
      writeFileSync(`${log}.copy`, readFileSync(log));
      renameSync(`${log}.copy`, log);
    },
    left: unchanged,
  },
  { what: 'moved away', apply: (log) => renameSync(log, `${log}.old`), left: unchanged },
  {
    what: 'moved away with its folder',
    apply: (log) => renameSync(dirname(log), `${dirname(log)}.old`),
    left: unchanged,
  },
  { what: 'removed', apply: unlinkSync, left: unchanged },
  {
    what: 'truncated within a line',
    apply: (log) => truncateSync(log, statSync(log).size - 5),
    left: (before) => before.subarray(0, -5),
  },
  { what: 'emptied', apply: (log) => truncateSync(log, 0), left: () => Buffer.alloc(0) },
  {
    what: 'appended to',
    apply: (log) => void execFileSync('sh', ['-c', 'echo x >> "$0"', log]),
    left: (before) => Buffer.concat([before, Buffer.from('x\n')]),
    keepsPlants: true,
  },
];

for (const change of CHANGES)
  t.test(`a log that is ${change.what}: a new plant gets 503 and the exit code is 1`, (t) =>
    givesUp(t, change, (ledger) => ledger.next()),
  );

for (const change of CHANGES.filter(({ keepsPlants }) => !keepsPlants))
  t.test(`a log that is ${change.what}: a stored plant is not acknowledged again`, (t) =>
    givesUp(t, change, (_, stored) => stored),
  );

/** Changes the log of a program that serves, and sends it a plant. */
async function givesUp(
  t: Test,
  { apply, left }: Change,
  choose: (ledger: Ledger, stored: Plant) => Plant,
): Promise<void> {
  const ledger = createLedger();
  const log = join(t.testdir(), 'data', 'plants.jsonl');
  const program = await start(t, { env: settingsFor(log) });
  const stored = ledger.next();
  t.equal(await ledger.post(program, stored), 200);
  await startLoad(ledger, program, { plants: 100 }).ended;
  const file = openSync(log, 'r');
  const before = contentOf(t, file);
  ledger.check(before);

  apply(log);
  assert.equal(await ledger.post(program, choose(ledger, stored)), 503);
  t.match(await program.ended, { code: 1 }, program.stderr);
  t.match(program.stderr, /was modified|no such file/);
  t.ok(contentOf(t, file).equals(left(before)), 'the program writes nothing more');
  closeSync(file);
}

function contentOf(t: Test, file: number): Buffer {
  const content = Buffer.alloc(fstatSync(file).size);
  t.equal(readSync(file, content, 0, content.length, 0), content.length);
  return content;
}
