import { strict as assert } from 'node:assert';
import { execFileSync } from 'node:child_process';
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

import type { Case, Extent } from './case.js';
import { filesIn, isLock, tornTails } from './files.js';
import { createLedger, startLoad, type Ledger } from './ledger.js';
import { run, serve, stop, TOKEN, type Ended, type Server } from './program.js';
import { attach, callsIn, injecting, injections, killingAt, recording } from './strace.js';

/** System calls that fail, or kill, or find no room, under the real program. */
export const outsideCases = (extent: Extent): Case[] => [
  {
    promise: 'after a write that fails, plants get 503, the program ends with 1, every 200 is kept',
    needs: ['strace'],
    async check(folder) {
      const faults = [
        'write:error=EIO:when=1',
        'write:error=EIO:when=3',
        'write:error=EROFS:when=2',
        'statx:error=EIO:when=4',
      ];
      for (const [n, fault] of faults.entries()) {
        const log = join(folder, `${n}.jsonl`);
        const ledger = createLedger();
        const calls = { paths: [log], names: 'write,statx' };
        await failsForGood(log, ledger, injecting(calls, fault));
      }
      return faults.join(', ');
    },
  },
  {
    promise: 'after a write without room that cannot be undone, the same',
    needs: ['strace', 'prlimit'],
    async check(folder) {
      const log = join(folder, 'plants.jsonl');
      const ledger = createLedger();
      const calls = { paths: [log], names: 'ftruncate' };
      const under = [
        'prlimit',
        '--fsize=100000:',
        ...injecting(calls, 'ftruncate:error=EIO:when=1'),
      ];
      await failsForGood(log, ledger, under);
      return tornTails(folder);
    },
  },
  {
    promise: 'a write that finds no room once refuses its plant, and the next one is stored',
    needs: ['strace'],
    async check(folder) {
      const errors = ['ENOSPC', 'EDQUOT', 'EFBIG'];
      for (const error of errors) {
        const log = join(folder, `${error}.jsonl`);
        const ledger = createLedger();
        const calls = { paths: [log], names: 'write' };
        const server = await serve({ log, under: injecting(calls, `write:error=${error}:when=2`) });
        const plants = [ledger.next(), ledger.next(), ledger.next()] as const;
        assert.equal(await ledger.post(server, plants[0]), 200);
        assert.equal(await ledger.post(server, plants[1]), 503, error);
        assert.equal(await ledger.post(server, plants[2]), 200);
        assert.equal(await ledger.post(server, plants[1]), 200, 'the client sends it again');
        await stop(server);
        ledger.check(log);
      }
      return errors.join(', ');
    },
  },
  {
    promise: 'at the largest size of a file plants get 503, and 200 once it may grow again',
    needs: ['prlimit'],
    async check(folder) {
      const log = join(folder, 'plants.jsonl');
      return refusesUntilThereIsRoom(log, ['prlimit', '--fsize=100000:'], ({ pid }) => {
        execFileSync('prlimit', ['--pid', String(pid), '--fsize=unlimited:']);
      });
    },
  },
  {
    promise: 'on a full disk plants get 503, all else goes on, and 200 once there is room again',
    needs: ['root', 'mount'],
    async check(folder) {
      const disk = join(folder, 'disk');
      mkdirSync(disk);
      execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', disk]);
      const ballast = join(disk, 'ballast');
      writeFileSync(ballast, Buffer.alloc(900_000));
      const seen = await refusesUntilThereIsRoom(join(disk, 'plants.jsonl'), [], () => {
        rmSync(ballast);
      });
      execFileSync('umount', [disk]);
      return seen;
    },
  },
  {
    promise: 'killed between a short write and its undoing, every 200 is kept',
    needs: ['strace', 'prlimit'],
    async check(folder) {
      const log = join(folder, 'plants.jsonl');
      const ledger = createLedger();
      const calls = { paths: [log], names: 'ftruncate' };
      const under = injecting(calls, 'ftruncate:signal=KILL:when=1');
      const server = await serve({ log, under: ['prlimit', '--fsize=100000:', ...under] });
      await startLoad(ledger, server).ended;
      assert.equal((await server.ended).how, 'SIGKILL');
      assert.notEqual(readFileSync(log).at(-1), 0x0a, 'a line is torn');
      await startAgain(log, ledger);
      return tornTails(folder);
    },
  },
  {
    promise: 'killed at any system call while plants are stored, every 200 is kept',
    needs: ['root', 'strace'],
    check: (folder) => killedWhileStoring(folder, extent),
  },
  {
    promise: 'recovery that is killed at any system call and repeated ends like one that is not',
    needs: ['strace'],
    async check(folder) {
      const ledger = createLedger();
      const before = join(folder, 'before');
      await makeTornLog(before, ledger);
      return killedAnywhere(extent, folder, before, [], async (log) => {
        const server = await serve({ log });
        await stop(server);
        ledger.check(log);
        assert.ok(!readdirSync(dirname(log)).some(isLock), 'no lock is left');
      });
    },
  },
  {
    promise: 'a repair that is killed at any system call and repeated ends like one that is not',
    needs: ['strace'],
    async check(folder) {
      const before = join(folder, 'before');
      await makeTornLog(before, createLedger());
      const log = readFileSync(join(before, 'plants.jsonl'));
      const middle = log.indexOf('\n', log.length / 2) + 1;
      const damaged = [log.subarray(0, middle), 'x\n', log.subarray(middle)].map((part) =>
        Buffer.from(part),
      );
      writeFileSync(join(before, 'plants.jsonl'), Buffer.concat(damaged));
      return killedAnywhere(extent, folder, before, ['repair'], async (path) => {
        const left = readFileSync(path);
        assert.ok(left.equals(log) || left.equals(Buffer.concat(damaged)), 'before or after');
        await run({ log: path, command: ['repair'] }).ended;
        assert.ok(readFileSync(path).equals(log));
      });
    },
  },
  {
    promise: 'a start, verify and repair tell how much of a log they have read',
    needs: ['strace'],
    async check(folder) {
      const log = join(folder, 'plants.jsonl');
      const lines = Array.from({ length: 30_000 }, (_, id) => `{"id":${id},"name":"fern"}\n`);
      writeFileSync(log, `${lines.join('')}x\n`);
      const calls = { paths: [log], names: 'pread64' };
      const under = injecting(calls, 'pread64:delay_enter=1100000:when=2');
      const told: string[] = [];
      for (const command of [[], ['verify'], ['repair']]) {
        const { stderr } = await run({ log, under, command }).ended;
        told.push(
          /reading .*: (\d+ %)/.exec(stderr)?.[1] ?? assert.fail(`${command.join()}: nothing`),
        );
      }
      return told.join(', ');
    },
  },
];

/** Loads a program that meets a fault for good, and starts another one on its log. */
async function failsForGood(log: string, ledger: Ledger, under: readonly string[]): Promise<void> {
  const server = await serve({ log, under });
  await startLoad(ledger, server, { plants: 2_000 }).ended;
  assert.ok(ledger.statuses.has(undefined), 'it does not go on');
  const { how, stderr } = await server.ended;
  assert.equal(how, 1, `it ends with 1: ${stderr}`);
  assert.ok(ledger.statuses.has(503), 'what was not stored is answered with 503');
  for (const status of ledger.statuses.keys()) assert.ok([200, 503, undefined].includes(status));
  await startAgain(log, ledger);
}

async function startAgain(log: string, ledger: Ledger): Promise<void> {
  const server = await serve({ log });
  ledger.check(log);
  assert.equal(await ledger.post(server, ledger.next()), 200, 'it serves again');
  await stop(server);
  ledger.check(log);
}

async function refusesUntilThereIsRoom(
  log: string,
  under: readonly string[],
  makeRoom: (server: Server) => void,
): Promise<string> {
  const ledger = createLedger();
  const server = await serve({ log, under });
  const first = ledger.next();
  assert.equal(await ledger.post(server, first), 200);
  await startLoad(ledger, server, { plants: 500 }).ended;
  ledger.check(log);
  const refused = ledger.statuses.get(503) ?? 0;
  assert.ok(refused > 0, 'without room, plants are answered with 503');
  assert.deepEqual(new Set(ledger.statuses.keys()), new Set([200, 503]), 'and with nothing else');

  assert.equal(await ledger.post(server, ledger.next(100_000)), 503);
  assert.equal(await ledger.post(server, first), 200, 'a plant that is stored is');
  assert.equal(await statusOf(server, 'GET'), 405);
  assert.equal(await statusOf(server, 'POST', '{'), 400);
  ledger.check(log);

  makeRoom(server);
  const stored = ledger.acknowledged;
  await startLoad(ledger, server, { plants: 50 }).ended;
  assert.equal(ledger.acknowledged, stored + 50, 'with room, plants are stored again');
  ledger.check(log);
  await stop(server);
  ledger.check(log);
  return `${ledger.acknowledged} plants stored, ${refused} refused`;
}

async function statusOf(server: Server, method: string, body?: string): Promise<number> {
  const { status } = await fetch(`http://127.0.0.1:${server.serves}/plants`, {
    method,
    headers: { Authorization: `Bearer ${TOKEN}`, 'Content-Type': 'application/json' },
    ...(body !== undefined && { body }),
  });
  return status;
}

const MOST_OF_A_KIND = 4;

async function killedWhileStoring(folder: string, extent: Extent): Promise<string> {
  const log = join(folder, 'plants.jsonl');
  const record = join(folder, 'record');
  const ledger = createLedger();

  const reference = await serve({ log });
  const tracer = await attach(reference.pid, ['-o', record]);
  await startLoad(ledger, reference, { clients: 4, plants: 20 }).ended;
  await tracer.detach();
  await stop(reference);

  const calls = callsIn(record, extent).filter(({ nth }) => nth <= MOST_OF_A_KIND);
  let killed = 0;
  for (const call of calls) {
    const server = await serve({ log });
    ledger.check(log);
    await attach(server.pid, injections({ names: call.name }, killingAt(call)));
    const before = ledger.acknowledged;
    await startLoad(ledger, server, { clients: 4, plants: 100 }).ended;
    if (ledger.acknowledged < before + 100) killed++;
    server.kill('SIGKILL');
    await server.ended;
  }
  assert.ok(killed > 0.5 * calls.length, `killed at ${killed} of ${calls.length} calls only`);
  await startAgain(log, ledger);
  return `killed at ${killed} of ${calls.length} calls, ${ledger.acknowledged} plants`;
}

/** A log of some plants with a torn tail, in a folder of its own. */
async function makeTornLog(folder: string, ledger: Ledger): Promise<void> {
  mkdirSync(folder);
  const log = join(folder, 'plants.jsonl');
  const server = await serve({ log });
  await startLoad(ledger, server, { plants: 20, bytes: 300_000 }).ended;
  await stop(server);
  appendFileSync(log, readFileSync(log).subarray(0, 25));
}

/** The calls with which a lock is taken and released, besides those of a listener. */
const LOCK_CALLS = 'bind,listen,chmod,fchmodat,connect,rename,renameat,renameat2,unlink,unlinkat';

/**
 * Kills the program at every system call that has to do with its files, each time on a copy of the
 * same folder, and looks whether doing it again leaves what doing it once leaves.
 */
async function killedAnywhere(
  extent: Extent,
  folder: string,
  before: string,
  command: readonly string[],
  again: (log: string) => Promise<void>,
): Promise<string> {
  const place = join(folder, 'place');
  const log = join(place, 'plants.jsonl');
  const record = join(folder, 'record');

  async function attempt(under: readonly string[]): Promise<Ended> {
    rmSync(place, { recursive: true, force: true });
    cpSync(before, place, { recursive: true });
    const program = run({ log, command, under });
    if ((await program.port) !== undefined) program.kill('SIGTERM');
    return program.ended;
  }

  assert.equal((await attempt([])).how, 0);
  const once = filesIn(place);
  const paths = [place, `${log}.repair.new`, ...Object.keys(once).map((name) => join(place, name))];
  let killed = 0;
  let tried = 0;
  for (const calls of [{ paths, names: 'all' }, { names: LOCK_CALLS }]) {
    assert.equal((await attempt(recording(calls, record))).how, 0);
    for (const call of callsIn(record, extent)) {
      const { how } = await attempt(injecting({ ...calls, names: call.name }, killingAt(call)));
      if (how === 'SIGKILL') killed++;
      tried++;
      await again(log);
      assert.deepEqual(filesIn(place), once, `killed at ${call.name} ${call.nth}`);
    }
  }
  assert.ok(killed > 0.8 * tried, `killed at ${killed} of ${tried} calls only`);
  return `killed at ${killed} of ${tried} calls`;
}
