import { appendFileSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname } from 'node:path';

import t from 'tap';

import type { Damage } from '../../dist/log/errors.js';
import { nodeSystem, type System } from '../../dist/log/files.js';
import { encodeRecord, MAX_RECORD_BYTES } from '../../dist/log/record.js';
import { verifyLog, type Verification } from '../../dist/log/verify.js';
import {
  changingAfter,
  countOf,
  faultyFileSystem,
  hangNext,
  ignore,
  logAt,
  logOf,
  openWithFaults,
  plantsNamed,
  rewriteEnd,
  UNAVAILABLE,
  untilAvailable,
} from './support.js';

const NOT_A_RECORD = 'it is not a valid record, or its checksum does not match';

/** What verifying finds. */
async function verified(path: string, fs: System = nodeSystem): Promise<[Verification, Damage[]]> {
  const damages: Damage[] = [];
  const onDamage = (damage: Damage): void => void damages.push(damage);
  return [await verifyLog(fs, path, { onDamage, onProgress: ignore }), damages];
}

/** The damaged lines, by their numbers. */
function damagedLinesOf(path: string, damages: readonly Damage[]): [line: number, text: string][] {
  const content = readFileSync(path, 'latin1');
  return damages.map(({ line, offset, length }) => [line, content.slice(offset, offset + length)]);
}

t.test('verifying an undamaged log finds all its plants and changes nothing', async (t) => {
  const content = logOf(plantsNamed('fern', 'ivy\n', '\ud800', ''));
  const path = logAt(t, content);
  const before = statSync(path, { bigint: true });
  const [verification, damages] = await verified(path);
  const { length: bytes } = content;
  t.strictSame(verification, { plants: 4, damagedLines: 0, bytes, tornBytes: 0 });
  t.strictSame(damages, []);
  const after = statSync(path, { bigint: true });
  t.strictSame([after.mtimeNs, after.ctimeNs], [before.mtimeNs, before.ctimeNs]);
  t.strictSame(readdirSync(dirname(path)), ['plants.jsonl'], 'nothing is beside it');
});

const [FERN, IVY, OAK] = [
  { id: 1n, name: 'fern' },
  { id: 2n, name: 'ivy'.repeat(20) },
  { id: 3n, name: 'oak'.repeat(20) },
].map(encodeRecord) as [string, string, string];
const MOSS = encodeRecord({ id: 4n, name: 'moss'.repeat(1_000) });
/** Longer than what is compared at a time when a line is read again. */
const LONG_DAMAGE = `${'x'.repeat(100_000)}\n`;

t.test('verifying reports every damaged line with its offset, length and reason', async (t) => {
  const flipped = FERN.replace('fern', 'farn');
  const lines: [line: string, reason?: string][] = [
    [flipped, NOT_A_RECORD],
    [IVY],
    ['\n', NOT_A_RECORD],
    [IVY, `it repeats the id of the line at byte ${flipped.length}`],
    ['{"id":9,"name":"\xe9"}\n', 'it is not valid UTF-8'],
    [`${'\0'.repeat(MAX_RECORD_BYTES + 1)}\n`, 'it is longer than any record'],
    [OAK],
    ['{}\n', NOT_A_RECORD],
  ];
  const torn = '{"id":';
  const content = lines.map(([line]) => line).join('') + torn;
  const path = logAt(t, Buffer.from(content, 'latin1'));
  const [verification, damages] = await verified(path);
  const { length: bytes } = content;
  t.strictSame(verification, { plants: 2, damagedLines: 6, bytes, tornBytes: torn.length });
  const expected = lines.flatMap(([line, reason], n) => (reason ? [{ n, line, reason }] : []));
  t.strictSame(
    damagedLinesOf(path, damages),
    expected.map(({ n, line }) => [n + 1, line]),
  );
  t.strictSame(
    damages.map(({ reason }) => reason),
    expected.map(({ reason }) => reason),
  );
});

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
  'the failed write is as long as any record': {
    before: FERN,
    cut: '\0'.repeat(MAX_RECORD_BYTES),
    written: IVY,
  },
};

for (const [what, { before, cut, written }] of Object.entries(failedWrites))
  t.test(`a write that a server cuts off meanwhile is not damage: ${what}`, async (t) => {
    const path = logAt(t, before + cut);
    const change = (): void => rewriteEnd(path, before.length, written);
    const fs = changingAfter(before.length + cut.length, change);
    const [verification, damages] = await verified(path, fs);
    t.strictSame(damages, []);
    t.equal(verification.damagedLines, 0);
    t.strictSame((await verified(path))[1], [], 'the log is whole');
  });

t.test('damage is reported although a server cuts off a write beside it', async (t) => {
  const before = `x\n${FERN}${FERN}${LONG_DAMAGE}`;
  const path = logAt(t, before + OAK.slice(0, 30));
  const change = (): void => rewriteEnd(path, before.length, `${IVY}y\n${IVY}`);
  const [verification, damages] = await verified(path, changingAfter(before.length + 30, change));
  t.strictSame(damagedLinesOf(path, damages), [
    [1, 'x\n'],
    [3, FERN],
    [4, LONG_DAMAGE],
    [6, 'y\n'],
  ]);
  t.equal(verification.damagedLines, 4);
});

t.test('a server whose disk is full and has room again has no damaged lines', async (t) => {
  const faults = { 'write 1': { writes: 30, fails: 'ENOSPC' } };
  const opened = await openWithFaults(t, faults, { content: Buffer.from(FERN) });
  const { log, path } = opened;
  const [ivy, oak] = [
    { id: 2n, name: 'ivy'.repeat(20) },
    { id: 3n, name: 'oak'.repeat(20) },
  ] as const;
  const cutting = await hangNext(t, opened, 'truncate', [oak]);
  const fs = changingAfter(FERN.length + 30, async () => {
    cutting.open();
    await untilAvailable(log);
    t.equal(await log.add(ivy), 'created');
  });
  t.strictSame((await verified(path, fs))[1], []);
});

t.test('damaged lines are read again together, not one by one', async (t) => {
  const whole = String(logOf(plantsNamed(...Array<string>(20_000).fill(''))));
  for (const content of ['x\n'.repeat(200_000), whole + whole]) {
    const fs = faultyFileSystem();
    const [{ damagedLines }] = await verified(logAt(t, content), fs);
    t.ok(damagedLines >= 20_000);
    const reads = countOf(fs, 'read');
    t.ok(reads < content.length / 10_000, `${reads} reads of ${content.length} bytes`);
  }
});

t.test('the progress never exceeds the size of the log, even if the log grows', async (t) => {
  const plants = plantsNamed(...Array<string>(40_000).fill('fern'));
  const path = logAt(t, logOf(plants.slice(0, 20_000)));
  const progress: [bytes: number, totalBytes: number][] = [];
  const verification = await verifyLog(nodeSystem, path, {
    onDamage: ignore,
    onProgress(...each) {
      if (progress.push(each) === 1) appendFileSync(path, logOf(plants.slice(20_000)));
    },
  });
  t.equal(verification.plants, plants.length);
  t.ok(progress.length > 2);
  t.ok(progress.every(([bytes, totalBytes]) => bytes <= totalBytes));
});

t.test('a log that cannot be read is not verified', async (t) => {
  const missing = logAt(t);
  await t.rejects(verified(missing), { ...UNAVAILABLE, message: /plants\.jsonl: .*ENOENT/ });
  t.strictSame(readdirSync(dirname(missing)), [], 'it is not created');

  const path = logAt(t, '{}\n');
  for (const kind of ['open', 'stat', 'read', 'close']) {
    const fs = faultyFileSystem({ [`${kind} 1`]: { fails: 'EIO' } });
    await t.rejects(verified(path, fs), { ...UNAVAILABLE, message: /EIO/ }, kind);
    t.equal(fs.openFiles, 0, 'the file is closed');
  }
});
