import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

import t, { type Test } from 'tap';

import { openLog } from '../../dist/log/log.js';
import { encodeRecord } from '../../dist/log/record.js';
import type { NewPlant } from '../../dist/plant.js';
import { PlantStoreError } from '../../dist/store.js';
import { plantsNamed } from '../helpers/plants.js';
import {
  contentOf,
  createGate,
  faultyFileSystem,
  ignore,
  isPending,
  nameOfKept,
  type Fault,
  type FaultyFileSystem,
} from './support.js';

/*
 * A log with a torn tail is opened, used and closed, again and again, and each time another of its operations fails
 * in another way. Whatever fails, the next process finds every acknowledged plant, the file consists of complete
 * lines, and the torn tail is beside it. Each write needs a sync here, so these operations are all that a log has.
 */

const ALL = plantsNamed('fern', 'ivy \u{1f33f}', 'moss', 'x'.repeat(300), 'reed');
/** What the log holds before it is opened. */
const STORED = ALL.slice(0, 1);
const PLANTS = ALL.slice(1);
const LINES = ALL.map(encodeRecord);
const TORN = '{"id":2,"na';

/** How any operation may fail, and how only writes do in other ways. */
const FAILURES: Record<string, Fault> = {
  EIO: { fails: 'EIO' },
  ENOSPC: { fails: 'ENOSPC' },
  'a short write': { writes: 9 },
  'a write of nothing': { writes: 0 },
  'a short write, then EIO': { writes: 9, fails: 'EIO' },
  'a short write, then ENOSPC': { writes: 9, fails: 'ENOSPC' },
  'EIO, though all was written': { writes: Infinity, fails: 'EIO' },
};

/** What has happened to a log so far. */
interface Life {
  /** How many operations it took to open it, if it was opened. */
  opened?: number;
  readonly acknowledged: Set<NewPlant>;
  readonly errors: unknown[];
  poisoned: boolean;
}

/** Opens a log, adds plants in two groups, then once more those that were refused, and closes it. */
async function live(fs: FaultyFileSystem, path: string, life: Life): Promise<void> {
  const log = await openLog(fs, path, { report: ignore }).catch((error: unknown) => {
    life.errors.push(error);
  });
  if (!log) return;
  life.opened = fs.operations.length;
  const addAll = (plants: readonly NewPlant[]): Promise<unknown> =>
    Promise.all(
      plants.map((plant) =>
        log.add(plant).then(
          () => life.acknowledged.add(plant),
          (error: unknown) => life.errors.push(error),
        ),
      ),
    );
  await addAll(PLANTS.slice(0, 1));
  await addAll([...PLANTS, ...PLANTS]);
  await addAll(PLANTS.filter((plant) => !life.acknowledged.has(plant)));
  await log.close().catch(() => undefined);
  life.poisoned = log.poisoned.aborted;
}

function hasStoredAll({ acknowledged }: Life): boolean {
  return PLANTS.every((plant) => acknowledged.has(plant));
}

/** A log with a torn tail, on a file system that has faults. */
function begin(t: Test, name: string) {
  // The path is too long for a socket in its folder, which takes one more operation to lock.
  const path = join(t.testdirName, name.padStart(100, '0'), 'plants.jsonl');
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, STORED.map(encodeRecord).join('') + TORN);
  const fs = faultyFileSystem({}, { dsyncIsDurable: false });
  const life: Life = { acknowledged: new Set(STORED), errors: [], poisoned: false };
  return { path, fs, life };
}

/** What the next process finds wrong with a log, to which all plants are sent again. */
async function wrongsAfter(path: string, fs: FaultyFileSystem, life: Life): Promise<string[]> {
  const wrongs: string[] = [];
  if (fs.openFiles > 0) wrongs.push(`${fs.openFiles} files were left open`);
  for (const error of life.errors)
    if (!(error instanceof PlantStoreError && error.code === 'unavailable'))
      wrongs.push(`it failed with ${String(error)}`);

  const log = await openLog(faultyFileSystem(), path, { report: ignore });
  const lines = readFileSync(path, 'utf8')
    .split(/(?<=\n)/)
    .filter(Boolean);
  if (!lines.every((line) => LINES.includes(line))) wrongs.push('it holds something else');
  if (log.size !== lines.length) wrongs.push(`it has ${log.size} of ${lines.length} plants`);
  for (const plant of life.acknowledged)
    if (!lines.includes(encodeRecord(plant))) wrongs.push(`plant ${plant.id} was lost`);
  for (const plant of PLANTS) {
    const expected = lines.includes(encodeRecord(plant)) ? 'unchanged' : 'created';
    const outcome = await log.add(plant).catch(String);
    if (outcome !== expected) wrongs.push(`plant ${plant.id}: ${outcome}`);
  }
  await log.close();
  const files = contentOf(dirname(path));
  const kept = nameOfKept('torn', TORN);
  if (files[kept] !== TORN) wrongs.push('the torn tail was lost');
  if (Object.keys(files).length > 2) wrongs.push(`it left one of ${Object.keys(files).join(', ')}`);
  return wrongs;
}

/** What was wrong with how the log continued after an operation failed. */
function wrongsOf(
  { kind, number }: { readonly kind: string; readonly number: number },
  fault: Fault,
  life: Life,
): string[] {
  if (life.opened === undefined) return [];
  const poisons =
    ['statSync', 'write', 'fsync'].includes(kind) &&
    number > life.opened &&
    (fault.fails === undefined ? fault.writes === 0 : fault.fails !== 'ENOSPC');
  if (poisons !== life.poisoned) return [poisons ? 'it went on' : 'it was poisoned'];
  if (!poisons && !hasStoredAll(life)) return ['it was not usable'];
  return [];
}

/**
 * The nth operation of all, or the nth write, from 1 on. It is not the same one in every run, because a
 * plant may be read back while others are written.
 */
function nthOperation({ operations }: FaultyFileSystem, nth: number, onlyWrites: boolean) {
  const places = operations.map((kind, index) => ({ kind, number: index + 1 }));
  return (onlyWrites ? places.filter(({ kind }) => kind === 'write') : places)[nth - 1];
}

for (const [what, fault] of Object.entries(FAILURES))
  t.test(`no acknowledged plant is lost, whichever operation fails: ${what}`, async (t) => {
    t.testdir();
    const onlyWrites = what !== 'EIO';
    const wrongs: string[] = [];
    for (let nth = 1; ; nth++) {
      const { path, fs, life } = begin(t, String(nth));
      fs.faults[onlyWrites ? (`write ${nth}` as const) : nth] = fault;
      await live(fs, path, life);
      const met = nthOperation(fs, nth, onlyWrites);
      if (!met) {
        t.ok(hasStoredAll(life), 'all plants are stored without a fault');
        break;
      }
      const found = [...wrongsOf(met, fault, life), ...(await wrongsAfter(path, fs, life))];
      wrongs.push(...found.map((wrong) => `${met.kind}, operation ${met.number}: ${wrong}`));
    }
    t.strictSame(wrongs, []);
  });

/** What is wrong while an operation waits. */
async function wrongsMeanwhile(path: string, life: Life, end: Promise<void>): Promise<string[]> {
  const wrongs = (await isPending(end)) ? [] : ['it did not wait'];
  for (const plant of life.acknowledged)
    if (!readFileSync(path, 'utf8').includes(encodeRecord(plant)))
      wrongs.push(`plant ${plant.id} was acknowledged too early`);
  return wrongs;
}

t.test('only durable plants are acknowledged if any operation hangs for too long', async (t) => {
  t.testdir();
  const wrongs: string[] = [];
  let refusals = 0;
  for (let number = 1; ; number++) {
    const { path, fs, life } = begin(t, String(number));
    const gate = createGate();
    fs.faults[number] = { hangs: gate };
    const end = live(fs, path, life);
    await Promise.race([gate.reached, end]);
    const kind = fs.operations[number - 1];
    if (kind === undefined) break;
    // A synchronous operation cannot hang.
    if (kind === 'statSync') continue;
    const found = await wrongsMeanwhile(path, life, end);
    await fs.expire();
    gate.open();
    await end;
    refusals += life.errors.length;
    found.push(...(await wrongsAfter(path, fs, life)));
    wrongs.push(...found.map((wrong) => `${kind}, operation ${number}: ${wrong}`));
  }
  t.strictSame(wrongs, []);
  t.ok(refusals > 0, 'plants are refused meanwhile');
});
