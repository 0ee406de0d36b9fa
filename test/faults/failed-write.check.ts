/* System calls that fail and disks that fill up, under the built program. */
import { strict as assert } from 'node:assert';
import { execFileSync } from 'node:child_process';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import t, { type Test } from 'tap';

import { TOKEN } from '../client.js';
import { start, type Program } from '../system/program.js';
import { createLedger, startLoad, type Ledger } from './ledger.js';
import { injecting } from './strace.js';
import { countTornTails, missing, mount, settingsFor, stopCleanly } from './support.js';

const MAX_FILE = ['prlimit', '--fsize=100000:'];

t.setTimeout(1_800_000);

for (const fault of [
  'write:error=EIO:when=1',
  'write:error=EIO:when=3',
  'write:error=EROFS:when=2',
  'statx:error=EIO:when=4',
])
  t.test(
    `after ${fault}, plants get 503, the exit code is 1, and no acknowledged plant is lost`,
    { skip: missing('strace') },
    async (t) => {
      const log = join(t.testdir(), 'plants.jsonl');
      await failsForGood(t, log, injecting({ paths: [log], names: 'write,statx' }, fault));
    },
  );

t.test(
  'a short write that cannot be truncated: 503, exit code 1, no acknowledged plant lost',
  { skip: missing('strace', 'prlimit') },
  async (t) => {
    const folder = t.testdir();
    const log = join(folder, 'plants.jsonl');
    const calls = { paths: [log], names: 'ftruncate' };
    const under = [...MAX_FILE, ...injecting(calls, 'ftruncate:error=EIO:when=1')];
    await failsForGood(t, log, under);
    t.comment(`torn tails: ${countTornTails(folder)}`);
  },
);

for (const error of ['ENOSPC', 'EDQUOT', 'EFBIG'])
  t.test(
    `a write that fails once with ${error} gets 503, and the next plant is stored`,
    { skip: missing('strace') },
    async (t) => {
      const log = join(t.testdir(), 'plants.jsonl');
      const ledger = createLedger();
      const under = injecting({ paths: [log], names: 'write' }, `write:error=${error}:when=2`);
      const program = await start(t, { env: settingsFor(log), under });
      const plants = [ledger.next(), ledger.next(), ledger.next()] as const;
      t.equal(await ledger.post(program, plants[0]), 200);
      t.equal(await ledger.post(program, plants[1]), 503);
      t.equal(await ledger.post(program, plants[2]), 200);
      t.equal(await ledger.post(program, plants[1]), 200, 'the client retries');
      await stopCleanly(t, program);
      ledger.check(log);
    },
  );

t.test(
  'at the file size limit plants get 503, and 200 once the limit is raised',
  { skip: missing('prlimit') },
  async (t) => {
    const log = join(t.testdir(), 'plants.jsonl');
    await refusesUntilThereIsRoom(t, log, MAX_FILE, ({ pid }) => {
      execFileSync('prlimit', ['--pid', String(pid), '--fsize=unlimited:']);
    });
  },
);

t.test(
  'on a full disk plants get 503, other requests are answered, and with room plants get 200',
  { skip: missing('the right to mount') },
  async (t) => {
    const disk = mount(t, '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs');
    const ballast = join(disk, 'ballast');
    writeFileSync(ballast, Buffer.alloc(900_000));
    await refusesUntilThereIsRoom(t, join(disk, 'plants.jsonl'), [], () => rmSync(ballast));
  },
);

t.test(
  'SIGKILL between a short write and its truncation loses no acknowledged plant',
  { skip: missing('strace', 'prlimit') },
  async (t) => {
    const folder = t.testdir();
    const log = join(folder, 'plants.jsonl');
    const ledger = createLedger();
    const calls = { paths: [log], names: 'ftruncate' };
    const under = [...MAX_FILE, ...injecting(calls, 'ftruncate:signal=KILL:when=1')];
    const program = await start(t, { env: settingsFor(log), under });
    await startLoad(ledger, program).ended;
    t.match(await program.ended, { signal: 'SIGKILL' });
    t.not(readFileSync(log).at(-1), 0x0a, 'the last line is torn');
    await servesAgain(t, log, ledger);
    t.equal(countTornTails(folder), 1);
  },
);

t.test(
  'a volume that is replaced by a copy gets no plant: 503, and exit code 1',
  { skip: missing('the right to mount') },
  async (t) => {
    const folder = mount(t, '-t', 'tmpfs', 'tmpfs');
    const log = join(folder, 'plants.jsonl');
    const ledger = createLedger();
    const program = await start(t, { env: settingsFor(log) });
    t.equal(await ledger.post(program, ledger.next()), 200);
    const content = readFileSync(log);
    execFileSync('mount', ['-t', 'tmpfs', 'tmpfs', folder]);
    t.teardown(() => execFileSync('umount', [folder]));
    // The first file of a new tmpfs: on recent kernels, its inode has the number of the other log's.
    writeFileSync(log, content);
    t.equal(await ledger.post(program, ledger.next()), 503);
    t.match(await program.ended, { code: 4 });
    t.match(program.stderr, /modified or replaced/);
    t.strictSame(readFileSync(log), content);
  },
);

/** Loads a program until a fault ends it, and starts another one on its log. */
async function failsForGood(t: Test, log: string, under: readonly string[]): Promise<void> {
  const ledger = createLedger();
  const program = await start(t, { env: settingsFor(log), under });
  await startLoad(ledger, program, { plants: 2_000 }).ended;
  assert.ok(ledger.statuses.has(undefined), 'it ends under load');
  t.match(await program.ended, { code: 1 }, program.stderr);
  t.ok(ledger.statuses.has(503), 'a plant that was not stored gets 503');
  for (const status of ledger.statuses.keys()) t.ok([200, 503, undefined].includes(status));
  await servesAgain(t, log, ledger);
}

async function servesAgain(t: Test, log: string, ledger: Ledger): Promise<void> {
  const program = await start(t, { env: settingsFor(log) });
  ledger.check(log);
  t.equal(await ledger.post(program, ledger.next()), 200, 'it serves again');
  await stopCleanly(t, program);
  ledger.check(log);
}

async function refusesUntilThereIsRoom(
  t: Test,
  log: string,
  under: readonly string[],
  makeRoom: (program: Program) => void,
): Promise<void> {
  const ledger = createLedger();
  const program = await start(t, { env: settingsFor(log), under });
  const first = ledger.next();
  t.equal(await ledger.post(program, first), 200);
  await startLoad(ledger, program, { plants: 500 }).ended;
  ledger.check(log);
  const refused = ledger.statuses.get(503) ?? 0;
  t.ok(refused > 0, 'without room, plants get 503');
  t.strictSame([...ledger.statuses.keys()].toSorted(), [200, 503], 'and no other status');

  t.equal(await ledger.post(program, ledger.next(100_000)), 503);
  t.equal(await ledger.post(program, first), 200, 'a plant that is already stored');
  t.equal(await statusOf(program, 'GET'), 405);
  t.equal(await statusOf(program, 'POST', '{'), 400);
  ledger.check(log);

  makeRoom(program);
  const stored = ledger.acknowledged;
  await startLoad(ledger, program, { plants: 50 }).ended;
  t.equal(ledger.acknowledged, stored + 50, 'with room, plants are stored again');
  ledger.check(log);
  await stopCleanly(t, program);
  ledger.check(log);
  t.comment(`${ledger.acknowledged} plants stored, ${refused} refused`);
}

async function statusOf({ url }: Program, method: string, body?: string): Promise<number> {
  const { status } = await fetch(`${url}/plants`, {
    method,
    headers: { Authorization: `Bearer ${TOKEN}`, 'Content-Type': 'application/json' },
    ...(body !== undefined && { body }),
  });
  return status;
}
