/* Runs the built program with a system call that fails, and on disks that fill up. */
import { strict as assert } from 'node:assert';
import { execFileSync } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import t, { type Test } from 'tap';

import { createLedger, startLoad, type Ledger } from '../helpers/load.js';
import { missing } from '../helpers/needs.js';
import { settingsFor, start, stopCleanly, type Program } from '../helpers/program.js';
import { injecting } from '../helpers/strace.js';
import { mount } from './support.js';

t.setTimeout(1_800_000);

const needs = ['strace', 'prlimit', 'the right to mount'];
const [noStrace = false, noPrlimit = false, noMount = false] = needs.map((need) => missing(need));

t.test('after a failed write, plants get 503, and none is lost', { skip: noStrace }, async (t) => {
  const log = join(t.testdir(), 'plants.jsonl');
  const env = settingsFor(log);
  const ledger = createLedger();
  const under = injecting({ paths: [log], names: 'write' }, 'write:error=EIO:when=3');
  const program = await start(t, { env, under });
  await startLoad(ledger, program.port, { plants: 2_000 }).ended;
  assert.ok(ledger.outcomes.has('ECONNREFUSED'), 'it ends under load');
  t.match(await program.ended, { code: 1 }, program.stderr);
  t.strictSame(statusesIn(ledger), [200, 503]);

  const next = await start(t, { env });
  ledger.expectNothingLost(log);
  t.equal(await ledger.post(next.port, ledger.next()), 200, 'it serves again');
  await stopCleanly(t, next);
  ledger.expectNothingLost(log);
});

t.test('at the file size limit, plants get 503, then 200', { skip: noPrlimit }, async (t) => {
  const log = join(t.testdir(), 'plants.jsonl');
  await expectRefusalsUntilRoom(t, log, ['prlimit', '--fsize=100000:'], ({ pid }) => {
    execFileSync('prlimit', ['--pid', String(pid), '--fsize=unlimited:']);
  });
});

t.test('on a full disk, plants get 503, then 200', { skip: noMount }, async (t) => {
  const disk = mount(t, '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs');
  const ballast = join(disk, 'ballast');
  writeFileSync(ballast, Buffer.alloc(900_000));
  await expectRefusalsUntilRoom(t, join(disk, 'plants.jsonl'), [], () => rmSync(ballast));
});

async function expectRefusalsUntilRoom(
  t: Test,
  log: string,
  under: readonly string[],
  makeRoom: (program: Program) => void,
): Promise<void> {
  const ledger = createLedger();
  const program = await start(t, { env: settingsFor(log), under });
  const first = ledger.next();
  t.equal(await ledger.post(program.port, first), 200);
  await startLoad(ledger, program.port, { plants: 500 }).ended;
  ledger.expectNothingLost(log);
  t.strictSame(statusesIn(ledger), [200, 503], 'without room');

  t.equal(await ledger.post(program.port, ledger.next(100_000)), 503);
  t.equal(await ledger.post(program.port, first), 200, 'a plant that is already stored');
  ledger.expectNothingLost(log);

  makeRoom(program);
  const stored = ledger.acknowledged;
  await startLoad(ledger, program.port, { plants: 50 }).ended;
  t.equal(ledger.acknowledged, stored + 50, 'with room, plants are stored again');
  ledger.expectNothingLost(log);
  await stopCleanly(t, program);
  ledger.expectNothingLost(log);
}

const statusesIn = ({ outcomes }: Ledger) => [...outcomes.keys()].filter(Number).toSorted();
