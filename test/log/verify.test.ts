import { appendFileSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';

import t, { type Test } from 'tap';

import type { Damage } from '../../dist/log/errors.js';
import { nodeFileSystem, type FileSystem } from '../../dist/log/file.js';
import { encodeRecord } from '../../dist/log/record.js';
import { verifyLog, type Verification } from '../../dist/log/verify.js';
import { faultyFileSystem, logOf, plantsNamed } from './support.js';

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
async function verified(
  path: string,
  fs: FileSystem = nodeFileSystem,
): Promise<[Verification, Damage[]]> {
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

t.test('the progress never exceeds the size of the log, even if the log grows', async (t) => {
  const path = logAt(t, logOf(plantsNamed(...Array<string>(20_000).fill('fern'))));
  const told: [bytes: number, totalBytes: number][] = [];
  const { plants } = await verifyLog(nodeFileSystem, path, {
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
