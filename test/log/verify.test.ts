import { appendFileSync, readdirSync, readFileSync, statSync, truncateSync } from 'node:fs';
import { dirname, join } from 'node:path';

import t, { type Test } from 'tap';

import type { Damage } from '../../dist/log/errors.js';
import { nodeSystem, type System } from '../../dist/log/system.js';
import { openLog } from '../../dist/log/log.js';
import { encodeRecord, MAX_RECORD_BYTES } from '../../dist/log/record.js';
import { verifyLog, type Verification } from '../../dist/log/verify.js';
import {
  changingAfter,
  createGate,
  faultyFileSystem,
  logOf,
  plantsNamed,
  rewriteEnd,
} from './support.js';

const NOT_A_RECORD = 'it is not a valid record, or its checksum does not match';
const UNAVAILABLE = { name: 'PlantStoreError', code: 'unavailable' };

/** What a server adds while a log is read. */
const NEW_PLANTS = Array.from({ length: 20_000 }, (_, n) => ({ id: -1n - BigInt(n), name: 'ivy' }));

const noProgress = (): void => undefined;

/** The path of a log with some content, in a folder of its own. */
function logAt(t: Test, content: string | Buffer): string {
  return join(t.testdir({ 'plants.jsonl': content }), 'plants.jsonl');
}

/** What verifying finds. */
async function verified(path: string, fs: System = nodeSystem): Promise<[Verification, Damage[]]> {
  const damages: Damage[] = [];
  const onDamage = (damage: Damage): void => void damages.push(damage);
  return [await verifyLog(fs, path, { onDamage, onProgress: noProgress }), damages];
}

t.test('verifying an undamaged log finds all its plants and changes nothing', async (t) => {
  const plants = plantsNamed('fern', 'ivy\n', '\ud800', '');
  const path = logAt(t, logOf(plants));
  const before = statSync(path, { bigint: true });
  const [verification, damages] = await verified(path);
  const bytes = logOf(plants).length;
  t.strictSame(verification, { plants: 4, damagedLines: 0, bytes, tornBytes: 0 });
  t.strictSame(damages, []);
  const after = statSync(path, { bigint: true });
  t.strictSame([after.mtimeNs, after.ctimeNs], [before.mtimeNs, before.ctimeNs]);
  t.strictSame(readdirSync(dirname(path)), ['plants.jsonl'], 'nothing is beside it');
});

t.test('verifying reports every damaged line with its offset, length and reason', async (t) => {
  const [fern = '', ivy = '', oak = ''] = plantsNamed('fern', 'ivy', 'oak').map(encodeRecord);
  const flipped = fern.replace('fern', 'farn');
  const latin1 = '{"id":9,"name":"\xe9"}\n';
  const path = logAt(
    t,
    Buffer.from([flipped, ivy, '\n', ivy, latin1, oak, '{}\n'].join(''), 'latin1'),
  );
  const [verification, damages] = await verified(path);
  t.match(verification, { plants: 2, damagedLines: 5, tornBytes: 0 });
  const reasons = [
    NOT_A_RECORD,
    NOT_A_RECORD,
    `it repeats the id of the line at byte ${flipped.length}`,
    'it is not valid UTF-8',
    NOT_A_RECORD,
  ];
  t.strictSame(
    damages.map(({ reason }) => reason),
    reasons,
  );
  t.strictSame(
    damages.map(({ line }) => line),
    [1, 3, 4, 5, 7],
  );
  const content = readFileSync(path, 'latin1');
  t.strictSame(
    damages.map(({ offset, length }) => content.slice(offset, offset + length)),
    [flipped, '\n', ivy, latin1, '{}\n'],
  );
});

const [FERN, IVY, OAK] = [
  { id: 1n, name: 'fern' },
  { id: 2n, name: 'ivy'.repeat(20) },
  { id: 3n, name: 'oak'.repeat(20) },
].map(encodeRecord) as [string, string, string];
const MOSS = encodeRecord({ id: 4n, name: 'moss'.repeat(1_000) });
/** Longer than what is compared at a time when a line is read again. */
const LONG_DAMAGE = `${'x'.repeat(100_000)}\n`;

/** A server cuts off `cut`, which a failed write has left, and writes `written` in its place. */
interface FailedWrite {
  readonly before: string;
  readonly cut: string;
  readonly written: string;
}

const failedWrites: Record<string, FailedWrite> = {
  'a line is read in two parts, of two writes': {
    before: FERN,
    cut: OAK.slice(0, 30),
    written: IVY,
  },
  'the next write has no line where the failed one had one': {
    before: FERN,
    cut: IVY + OAK.slice(0, 30),
    written: MOSS,
  },
  'a plant of the failed write is stored again, further on': {
    before: FERN,
    cut: IVY,
    written: OAK + IVY,
  },
  'the log is empty apart from the failed write': {
    before: '',
    cut: OAK.slice(0, 30),
    written: MOSS,
  },
};

for (const [what, { before, cut, written }] of Object.entries(failedWrites))
  t.test(
    `a write that a server cuts off meanwhile is not reported as damage: ${what}`,
    async (t) => {
      const path = logAt(t, before + cut);
      const change = (): void => rewriteEnd(path, before.length, written);
      const fs = changingAfter(before.length + cut.length, change);
      const [verification, damages] = await verified(path, fs);
      t.strictSame(damages, []);
      t.equal(verification.damagedLines, 0);
      t.strictSame((await verified(path))[1], [], 'the log is whole');
    },
  );

t.test('damage is reported although a server cuts off a write beside it', async (t) => {
  const before = `x\n${FERN}${FERN}${LONG_DAMAGE}`;
  const path = logAt(t, before + OAK.slice(0, 30));
  const written = `${IVY}y\n${IVY}`;
  const change = (): void => rewriteEnd(path, before.length, written);
  const fs = changingAfter(before.length + 30, change);
  const [verification, damages] = await verified(path, fs);
  const content = readFileSync(path, 'latin1');
  t.strictSame(
    damages.map(({ line, offset, length }) => [line, content.slice(offset, offset + length)]),
    [
      [1, 'x\n'],
      [3, FERN],
      [4, LONG_DAMAGE],
      [6, 'y\n'],
    ],
  );
  t.equal(verification.damagedLines, 4);
});

t.test('the start of a failed write is not taken for a line longer than any record', async (t) => {
  const path = logAt(t, FERN);
  truncateSync(path, FERN.length + MAX_RECORD_BYTES);
  const change = (): void => rewriteEnd(path, FERN.length, IVY);
  const [, damages] = await verified(path, changingAfter(FERN.length + MAX_RECORD_BYTES, change));
  t.strictSame(damages, []);
});

t.test('a line longer than any record is damaged', async (t) => {
  const path = logAt(t, FERN);
  const size = FERN.length + MAX_RECORD_BYTES + 1;
  truncateSync(path, size);
  appendFileSync(path, `\n${IVY}`);
  const [verification, damages] = await verified(path);
  const [offset, length] = [FERN.length, size + 1 - FERN.length];
  const reason = 'it is longer than any record';
  t.strictSame(damages, [{ line: 2, offset, length, reason }]);
  t.equal(verification.plants, 2);
});

t.test('a server whose disk is full and has room again has no damaged lines', async (t) => {
  const path = logAt(t, FERN);
  const cutting = createGate();
  const full = faultyFileSystem({
    'write 1': { writes: 30, fails: 'ENOSPC' },
    'truncate 1': { hangs: cutting },
  });
  const log = await openLog(full, path, { report: () => undefined });
  const oak = log.add({ id: 3n, name: 'oak'.repeat(20) });
  await cutting.reached;
  const fs = changingAfter(FERN.length + 30, async () => {
    cutting.open();
    await t.rejects(oak, UNAVAILABLE);
    t.equal(await log.add({ id: 2n, name: 'ivy'.repeat(20) }), 'created');
  });
  const [, damages] = await verified(path, fs);
  t.strictSame(damages, []);
  await log.close();
});

t.test('damaged lines are read again together, not one by one', async (t) => {
  const lines = Array.from({ length: 20_000 }, (_, id) =>
    encodeRecord({ id: BigInt(id), name: '' }),
  );
  const whole = lines.join('');
  for (const content of ['x\n'.repeat(200_000), whole + whole]) {
    const path = logAt(t, content);
    const fs = faultyFileSystem();
    const [{ damagedLines }] = await verified(path, fs);
    t.ok(damagedLines >= 20_000);
    const reads = fs.operations.filter((kind) => kind === 'read').length;
    t.ok(reads < content.length / 10_000, `${reads} reads of ${content.length} bytes`);
  }
});

t.test('the progress never exceeds the size of the log, even if the log grows', async (t) => {
  const path = logAt(t, logOf(plantsNamed(...Array<string>(20_000).fill('fern'))));
  const told: [bytes: number, totalBytes: number][] = [];
  const { plants } = await verifyLog(nodeSystem, path, {
    onDamage: () => undefined,
    onProgress(...progress) {
      if (told.push(progress) === 1) appendFileSync(path, logOf(NEW_PLANTS));
    },
  });
  t.equal(plants, 20_000 + NEW_PLANTS.length);
  t.ok(told.length > 2);
  t.ok(told.every(([bytes, totalBytes]) => bytes <= totalBytes));
});

t.test('a log that cannot be read is not verified', async (t) => {
  const folder = t.testdir({ 'plants.jsonl': '{}\n' });
  const missing = join(folder, 'missing.jsonl');
  await t.rejects(verified(missing), { ...UNAVAILABLE, message: /missing\.jsonl: .*ENOENT/ });
  t.strictSame(readdirSync(folder), ['plants.jsonl'], 'it is not created');

  const path = join(folder, 'plants.jsonl');
  for (const kind of ['open', 'stat', 'read', 'close']) {
    const fs = faultyFileSystem({ [`${kind} 1`]: { fails: 'EIO' } });
    await t.rejects(verified(path, fs), { ...UNAVAILABLE, message: /EIO/ }, kind);
    t.equal(fs.openFiles, 0, 'the file is closed');
  }
});
