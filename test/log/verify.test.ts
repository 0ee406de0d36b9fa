import { appendFileSync, readdirSync, statSync } from 'node:fs';
import { dirname } from 'node:path';

import t from 'tap';

import { damages, type Damage } from '../../dist/log/errors.js';
import { openPlantLog } from '../../dist/log/log.js';
import { nodeSystem, type System } from '../../dist/log/files.js';
import { encodeRecord, MAX_RECORD_BYTES } from '../../dist/log/record.js';
import { verifyLog } from '../../dist/log/recover.js';
import { faultyFileSystem, logAt, logOf, plantsNamed, UNAVAILABLE } from './support.js';

interface Verification {
  readonly plants: number;
  readonly bytes: number;
  readonly tail: string;
}

/** A damaged line, and its text. */
type Damaged = Omit<Damage, 'bytes' | 'plant'> & { readonly text: string };

/** What verifying finds. */
async function verified(path: string, fs: System = nodeSystem): Promise<[Verification, Damaged[]]> {
  const all: Damaged[] = [];
  let verification = { plants: 0, bytes: 0, tail: '' };
  for await (const { plants, end, damaged, isTorn, bytes } of verifyLog(fs, path)) {
    for (const { bytes, line, offset, reason } of damaged)
      all.push({ line, offset, reason, text: bytes.toString('latin1') });
    verification = { plants, bytes: end, tail: isTorn ? String(bytes) : '' };
  }
  return [verification, all];
}

t.test('verifying an undamaged log finds all its plants and changes nothing', async (t) => {
  const content = logOf(plantsNamed('fern', 'ivy\n', '\ud800', ''));
  const path = logAt(t, content);
  const before = statSync(path, { bigint: true });
  const [verification, damages] = await verified(path);
  const { length: bytes } = content;
  t.strictSame(verification, { plants: 4, bytes, tail: '' });
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

t.test('verifying reports every damaged line with its number, offset and reason', async (t) => {
  const flipped = FERN.replace('fern', 'farn');
  const lines: [line: string, reason?: string][] = [
    [flipped, damages.checksum],
    [IVY],
    ['\n', damages.noPlant],
    [IVY, `it repeats the id of the line at byte ${flipped.length}`],
    ['{"id":9,"name":"\xe9"}\n', damages.notUtf8],
    [OAK],
    [`${'x'.repeat(300_000)}\n`, damages.noPlant],
    ['{}\n', damages.noPlant],
  ];
  const torn = '{"id":';
  const whole = lines.map(([line]) => line).join('');
  const path = logAt(t, Buffer.from(whole + torn, 'latin1'));
  const [verification, damaged] = await verified(path);
  t.strictSame(verification, { plants: 2, bytes: whole.length, tail: torn });
  const expected: Damaged[] = [];
  let offset = 0;
  for (const [n, [text, reason]] of lines.entries()) {
    if (reason !== undefined) expected.push({ line: n + 1, offset, reason, text });
    offset += text.length;
  }
  t.strictSame(damaged, expected);
});

t.test('a line that is longer than any record is named by its byte', async (t) => {
  const path = logAt(t, `${FERN}${'\0'.repeat(MAX_RECORD_BYTES + 1)}\n`);
  const message = `${path}: the line at byte ${FERN.length} is longer than any record`;
  await t.rejects(verified(path), { ...UNAVAILABLE, message });
  await t.rejects(openPlantLog(path), { ...UNAVAILABLE, message });
});

t.test('verifying ends when it is left, and closes the file', async (t) => {
  const fs = faultyFileSystem();
  const path = logAt(t, logOf(plantsNamed(...Array<string>(40_000).fill('fern'))));
  for await (const { plants } of verifyLog(fs, path)) {
    t.ok(plants < 40_000);
    break;
  }
  t.equal(fs.openFiles, 0);
});

t.test('lines that a server appends meanwhile are checked, too', async (t) => {
  const plants = plantsNamed(...Array<string>(40_000).fill('fern'));
  const path = logAt(t, logOf(plants.slice(0, 20_000)));
  let found = 0;
  for await (const { plants: soFar, size } of verifyLog(nodeSystem, path)) {
    if (found === 0) appendFileSync(path, logOf(plants.slice(20_000)));
    found = soFar;
    t.equal(size, logOf(plants.slice(0, 20_000)).length);
  }
  t.equal(found, plants.length);
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
