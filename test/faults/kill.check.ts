/*
 * Kills the program with SIGKILL at every system call that changes something. Kills while it stores plants are
 * random: see ../system/sigkill.test.ts.
 */
import { cpSync, mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';

import t from 'tap';

import { claimPrefix } from '../../dist/log/lock.js';
import { logOf } from '../log/support.js';
import { DONE, KILLED, launch, type Ending } from '../system/program.js';
import { callsIn, injecting, recording } from './strace.js';
import { filesIn, missing, settingsFor } from './support.js';

/** More than is read or written at once. */
const STORED = logOf(
  Array.from({ length: 20 }, (_, id) => ({ id: BigInt(id), name: 'fern'.repeat(20_000) })),
);
const TORN = '{"id":7,"name":"fe';
/** The calls that acquire and release a lock, in addition to those of a listener. */
const LOCK_CALLS = 'bind,listen,chmod,fchmodat,connect,rename,renameat,renameat2,unlink,unlinkat';

t.setTimeout(1_800_000);
t.jobs = 2;

for (const { what, args, damage } of [
  { what: 'a recovery', args: [], damage: '' },
  { what: 'a repair', args: ['repair'], damage: 'x\n' },
])
  t.test(
    `${what} that is killed at any system call and repeated has the result of an undisturbed one`,
    { skip: missing('strace'), buffered: true },
    async (t) => {
      const folder = t.testdir();
      const [before, place, record] = ['before', 'place', 'record'].map((name) =>
        join(folder, name),
      ) as [string, string, string];
      const log = join(place, 'plants.jsonl');
      mkdirSync(before);
      writeFileSync(join(before, 'plants.jsonl'), damage + STORED.toString() + TORN);

      async function use(under: readonly string[] = []): Promise<Ending> {
        const program = launch(t, { args, env: settingsFor(log), under });
        // A command ends without that line, and a program that is killed may do so, too.
        await program.says('stdout', /^plant-store listening/).catch(() => undefined);
        program.send('SIGTERM');
        return program.ended;
      }
      async function useCopy(under?: readonly string[]): Promise<Ending> {
        rmSync(place, { recursive: true, force: true });
        cpSync(before, place, { recursive: true });
        return use(under);
      }

      t.strictSame(await useCopy(), DONE);
      const undisturbed = filesIn(place);
      t.ok(undisturbed['plants.jsonl']?.startsWith(STORED.toString()));
      const names = Object.keys(undisturbed);
      const paths = [place, `${log}.repair.new`, ...names.map((name) => join(place, name))];
      let killed = 0;
      let tried = 0;
      for (const calls of [{ paths, names: 'all' }, { names: LOCK_CALLS }]) {
        t.strictSame(await useCopy(recording(calls, record)), DONE);
        for (const { name, nth } of callsIn(record)) {
          const kill = injecting({ ...calls, names: name }, `${name}:signal=KILL:when=${nth}`);
          tried++;
          if ((await useCopy(kill)).signal === KILLED.signal) killed++;
          t.strictSame(await use(), DONE);
          // Not strictSame, which shows megabytes if it fails.
          t.ok(isDeepStrictEqual(filesIn(place), undisturbed), `killed at ${name} ${nth}`);
          const claims = claimPrefix(statSync(log, { bigint: true }).ino);
          t.notOk(
            readdirSync(place).some((each) => each.startsWith(claims)),
            'no claim is left',
          );
        }
      }
      t.ok(killed > 0.8 * tried, `killed at ${killed} of ${tried} calls`);
    },
  );
