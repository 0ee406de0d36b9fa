import t from 'tap';

import { openLog } from '../../dist/log/log.js';
import { nodeSystem, type System } from '../../dist/log/files.js';
import type { NewPlant } from '../../dist/plant.js';
import {
  failNext,
  FERN,
  holdNext,
  isPending,
  IVY,
  logAt,
  logOf,
  MOSS,
  openWithFaults,
  UNAVAILABLE,
} from './support.js';

/*
 * Whether a plant is the one that is stored with its id is settled by comparing bytes: those to which it
 * encodes with those of the line in the file.
 */

const STORED = { content: logOf([FERN, IVY]) };

/** Lines of records, which may be written by hand: without a checksum. The plant has the id 7. */
const LINES: Record<string, string> = {
  written: String(logOf([{ id: 7n, name: 'fern', tag: 'indoor' }])),
  'written by hand, without a checksum': '{"id":7,"name":"fern","tag":"indoor"}\n',
};

const OTHERS: Record<string, Omit<NewPlant, 'id'>> = {
  'another name of the same length': { name: 'reed', tag: 'indoor' },
  'the start of its name': { name: 'fer', tag: 'indoor' },
  'a longer name': { name: 'ferns', tag: 'indoor' },
  'no tag': { name: 'fern' },
  'an empty tag': { name: 'fern', tag: '' },
  'another tag': { name: 'fern', tag: 'ind' },
  'a longer tag': { name: 'fern', tag: 'indoors' },
  'a name that looks like the rest of the line': { name: 'fern","tag":"indoor' },
  'a name that is much longer than all lines': { name: 'fern'.repeat(1_000) },
};

for (const [how, line] of Object.entries(LINES))
  t.test(`a plant whose line was ${how} is unchanged, and any other a conflict`, async (t) => {
    const content = Buffer.concat([logOf([MOSS]), Buffer.from(line), logOf([IVY])]);
    const { log } = await openWithFaults(t, {}, { content });
    t.equal(await log.add({ id: 7n, name: 'fern', tag: 'indoor' }), 'unchanged');
    for (const [what, other] of Object.entries(OTHERS))
      await t.rejects(log.add({ id: 7n, ...other }), { code: 'conflict' }, what);
    t.notOk(log.poisoned.aborted);
  });

/** The real system, which notes how many bytes each read requests. */
function notingReads(): { system: System; requested: number[] } {
  const requested: number[] = [];
  const open: System['open'] = async (path, flags, mode) => {
    const file = await nodeSystem.open(path, flags, mode);
    const read = file.read.bind(file) as (...args: unknown[]) => Promise<unknown>;
    return Object.assign(file, {
      read(...args: unknown[]) {
        requested.push(Number(args[2]));
        return read(...args);
      },
    });
  };
  return { system: { ...nodeSystem, open }, requested };
}

t.test('no more is read than the sent plant takes, however long the stored line is', async (t) => {
  const { system, requested } = notingReads();
  const log = await openLog(system, logAt(t, logOf([{ id: 7n, name: 'x'.repeat(2 ** 20) }])));
  requested.length = 0;
  await t.rejects(log.add({ id: 7n, name: 'x' }), { code: 'conflict' });
  t.strictSame(requested, ['{"id":7,"name":"x","crc32":'.length]);
  await log.close();
});

t.test('add rejects if a line cannot be read, and the log stays usable', async (t) => {
  const { fs, log } = await openWithFaults(t, {}, STORED);
  failNext(fs, 'read', { fails: 'EIO' });
  await t.rejects(log.add(FERN), { ...UNAVAILABLE, message: /EIO/ });
  t.equal(await log.add(FERN), 'unchanged');
  t.equal(await log.add(MOSS), 'created');
  t.notOk(log.poisoned.aborted);
});

t.test('a read that hangs delays only the plant that is compared', async (t) => {
  const { fs, log, reports } = await openWithFaults(t, {}, STORED);
  const gate = holdNext(fs, 'read');
  const compared = log.add(FERN);
  await gate.reached;
  t.equal(await log.add(IVY), 'unchanged');
  t.equal(await log.add(MOSS), 'created');
  await fs.expire();
  await log.check();
  t.ok(await isPending(compared));
  gate.open();
  t.equal(await compared, 'unchanged');
  t.strictSame(reports, []);
});

t.test('plants that are compared when the log is closed are answered', async (t) => {
  const plants = Array.from({ length: 8 }, (_, n) => ({ id: BigInt(n), name: 'x'.repeat(1e6) }));
  const log = await openLog(nodeSystem, logAt(t, logOf(plants)));
  const outcomes = Promise.all(plants.map((plant) => log.add(plant)));
  await log.close();
  t.strictSame(await outcomes, Array<string>(8).fill('unchanged'));
});
