/*
 * Kills the program with SIGKILL at every system call that changes something; with TEST_LENGTH=long, at
 * every other one, too.
 */
import {
  appendFileSync,
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';

import t, { type Test } from 'tap';

import { launch, run, start, type Ending } from '../system/program.js';
import { createLedger, startLoad, type Ledger } from './ledger.js';
import {
  attach,
  callsIn,
  injecting,
  injections,
  killingAt,
  ONE_THREAD,
  recording,
} from './strace.js';
import { filesIn, isLock, missing, settingsFor, stopCleanly } from './support.js';

/** The most calls of one name at which the program is killed while it stores plants. */
const MOST_OF_A_NAME = 4;
/** The calls that acquire and release a lock, in addition to those of a listener. */
const LOCK_CALLS = 'bind,listen,chmod,fchmodat,connect,rename,renameat,renameat2,unlink,unlinkat';

t.setTimeout(1_800_000);
t.jobs = 3;

t.test(
  'SIGKILL at any system call while plants are stored loses no acknowledged plant',
  { skip: missing('the right to mount', 'strace'), buffered: true },
  async (t) => {
    const folder = t.testdir();
    const log = join(folder, 'plants.jsonl');
    const record = join(folder, 'record');
    const ledger = createLedger();
    const env = { ...settingsFor(log), ...ONE_THREAD };

    const reference = await start(t, { env });
    const tracer = await attach(reference.pid, ['-o', record]);
    await startLoad(ledger, reference, { clients: 4, plants: 20 }).ended;
    await tracer.detach();
    await stopCleanly(t, reference);

    const calls = callsIn(record).filter(({ nth }) => nth <= MOST_OF_A_NAME);
    let killed = 0;
    for (const call of calls) {
      const program = await start(t, { env });
      ledger.check(log);
      await attach(program.pid, injections({ names: call.name }, killingAt(call)));
      const before = ledger.acknowledged;
      await startLoad(ledger, program, { clients: 4, plants: 100 }).ended;
      if (ledger.acknowledged < before + 100) killed++;
      await program.stop('SIGKILL');
    }
    t.ok(killed > 0.5 * calls.length, `killed at ${killed} of ${calls.length} calls`);

    const last = await start(t, { env });
    ledger.check(log);
    t.equal(await ledger.post(last, ledger.next()), 200, 'it serves again');
    await stopCleanly(t, last);
    ledger.check(log);
  },
);

t.test(
  'a recovery that is killed at any system call and repeated has the result of an undisturbed one',
  { skip: missing('strace'), buffered: true },
  async (t) => {
    const folder = t.testdir();
    const ledger = createLedger();
    const before = join(folder, 'before');
    await makeTornLog(t, before, ledger);
    await killedAnywhere(t, { folder, before, args: [], killsLock: true }, async (log) => {
      await stopCleanly(t, await start(t, { env: settingsFor(log) }));
      ledger.check(log);
      t.notOk(readdirSync(dirname(log)).some(isLock), 'no lock is left');
    });
  },
);

t.test(
  'a repair that is killed at any system call and repeated has the result of an undisturbed one',
  { skip: missing('strace'), buffered: true },
  async (t) => {
    const folder = t.testdir();
    const before = join(folder, 'before');
    await makeTornLog(t, before, createLedger());
    const torn = readFileSync(join(before, 'plants.jsonl'));
    const intact = torn.subarray(0, torn.lastIndexOf('\n') + 1);
    const middle = torn.indexOf('\n', torn.length / 2) + 1;
    const damaged = Buffer.concat([
      torn.subarray(0, middle),
      Buffer.from('x\n'),
      torn.subarray(middle),
    ]);
    writeFileSync(join(before, 'plants.jsonl'), damaged);
    await killedAnywhere(t, { folder, before, args: ['repair'], killsLock: false }, async (log) => {
      const left = readFileSync(log);
      t.ok(left.equals(intact) || left.equals(damaged), 'the log is repaired, or unchanged');
      await run(t, { args: ['repair'], env: settingsFor(log) });
      t.ok(readFileSync(log).equals(intact));
    });
  },
);

/** A log of some plants with a torn tail, in a folder of its own. */
async function makeTornLog(t: Test, folder: string, ledger: Ledger): Promise<void> {
  mkdirSync(folder);
  const log = join(folder, 'plants.jsonl');
  const program = await start(t, { env: settingsFor(log) });
  await startLoad(ledger, program, { plants: 20, bytes: 300_000 }).ended;
  await stopCleanly(t, program);
  appendFileSync(log, readFileSync(log).subarray(0, 25));
}

interface Scenario {
  readonly folder: string;
  /** The folder with the log as the program finds it. */
  readonly before: string;
  readonly args: readonly string[];
  /** Whether it is also killed at the calls for its lock, which are the same for every command. */
  readonly killsLock: boolean;
}

/**
 * Kills the program at every system call that uses its files, each time on a copy of the same folder,
 * and checks that repeating it has the same result as one undisturbed run.
 */
async function killedAnywhere(
  t: Test,
  { folder, before, args, killsLock }: Scenario,
  repeat: (log: string) => Promise<void>,
): Promise<void> {
  const place = join(folder, 'place');
  const log = join(place, 'plants.jsonl');
  const record = join(folder, 'record');

  async function attempt(under: readonly string[]): Promise<Ending> {
    rmSync(place, { recursive: true, force: true });
    cpSync(before, place, { recursive: true });
    const program = launch(t, { args, env: settingsFor(log), under });
    // A command ends without that line, and a program that is killed may do so, too.
    await program.says('stdout', /^plant-store listening/).catch(() => undefined);
    program.send('SIGTERM');
    return program.ended;
  }

  t.match(await attempt([]), { code: 0 });
  const undisturbed = filesIn(place);
  const names = Object.keys(undisturbed);
  const paths = [place, `${log}.repair.new`, ...names.map((name) => join(place, name))];
  let killed = 0;
  let tried = 0;
  for (const calls of [{ paths, names: 'all' }, ...(killsLock ? [{ names: LOCK_CALLS }] : [])]) {
    t.match(await attempt(recording(calls, record)), { code: 0 });
    for (const call of callsIn(record)) {
      const under = injecting({ ...calls, names: call.name }, killingAt(call));
      const { signal } = await attempt(under);
      if (signal === 'SIGKILL') killed++;
      tried++;
      await repeat(log);
      t.strictSame(filesIn(place), undisturbed, `killed at ${call.name} ${call.nth}`);
    }
  }
  t.ok(killed > 0.8 * tried, `killed at ${killed} of ${tried} calls`);
}
