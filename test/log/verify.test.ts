import { appendFileSync, readdirSync, statSync } from 'node:fs';
import { dirname } from 'node:path';

import t from 'tap';

import { nodeSystem, type System } from '../../dist/log/files.js';
import { encodeRecord } from '../../dist/log/record.js';
import { verifyLog } from '../../dist/log/recover.js';
import { faultyFileSystem, ignore, logAt, logOf, plantsNamed, UNAVAILABLE } from './support.js';

/** What verifying finds: the plants, the byte offset at which the last line ends, what is torn, and all damage. */
async function verified(path: string, fs: System = nodeSystem) {
  const all: object[] = [];
  let found = { plants: 0, end: 0, torn: '' };
  for await (const { plants, end, damaged, torn } of verifyLog(fs, path, ignore)) {
    for (const { bytes, line, offset, reason } of damaged)
      all.push({ line, offset, reason, text: bytes.toString('latin1') });
    found = { plants, end, torn: String(torn) };
  }
  return { ...found, damaged: all };
}

t.test(
  'every damaged line has its number, offset and reason, and nothing is changed',
  async (t) => {
    const [fern, ivy, oak] = plantsNamed('fern', 'ivy'.repeat(20), '\ud800').map(encodeRecord) as [
      string,
      string,
      string,
    ];
    const flipped = fern.replace('fern', 'farn');
    const noJson = /^it must be one JSON text in UTF-8; it is not valid/;
    const lines: readonly (readonly [line: string, reason?: string | RegExp])[] = [
      [flipped, 'it has a crc32 that does not match its plant'],
      [ivy],
      ['\n', 'it is blank'],
      [ivy, `it repeats the id of the line at byte ${flipped.length}`],
      [oak],
      [`${'x'.repeat(300_000)}\n`, noJson],
      ['{}\n', /^id: must be an integer .*; name: must be a string$/],
    ];
    const torn = '{"id":';
    const whole = lines.map(([line]) => line).join('');
    const path = logAt(t, Buffer.from(whole + torn, 'latin1'));
    const before = statSync(path, { bigint: true });
    let offset = 0;
    const damaged = lines.flatMap(([text, reason], n) => {
      offset += text.length;
      return reason ? [{ line: n + 1, offset: offset - text.length, reason, text }] : [];
    });
    const found = await verified(path);
    t.match(found, { plants: 2, end: whole.length, torn, damaged });
    t.equal(found.damaged.length, damaged.length);
    const after = statSync(path, { bigint: true });
    t.strictSame([after.mtimeNs, after.ctimeNs], [before.mtimeNs, before.ctimeNs]);
    t.strictSame(readdirSync(dirname(path)), ['plants.jsonl'], 'nothing is beside it');
  },
);

t.test('verifying ends when it is left, and closes the file', async (t) => {
  const fs = faultyFileSystem();
  const path = logAt(t, logOf(plantsNamed(...Array<string>(40_000).fill('fern'))));
  for await (const { plants } of verifyLog(fs, path, ignore)) {
    t.ok(plants < 40_000);
    break;
  }
  t.equal(fs.openFiles, 0);
});

t.test('lines that a server appends meanwhile are checked, and progress ends at 1', async (t) => {
  const plants = plantsNamed(...Array<string>(40_000).fill('fern'));
  const first = logOf(plants.slice(0, 20_000));
  const path = logAt(t, first);
  const progress: [bytes: number, totalBytes: number][] = [];
  let found = 0;
  for await (const part of verifyLog(nodeSystem, path, (...each) => progress.push(each))) {
    if (found === 0) appendFileSync(path, logOf(plants.slice(20_000)));
    found = part.plants;
  }
  t.equal(found, plants.length);
  t.ok(progress.every(([bytes, total]) => bytes <= total && total === first.length));
  t.strictSame(progress.at(-1), [first.length, first.length]);
});

t.test('a log that cannot be read is not verified, and not created', async (t) => {
  const missing = logAt(t);
  await t.rejects(verified(missing), { ...UNAVAILABLE, message: /plants\.jsonl: .*ENOENT/ });
  t.strictSame(readdirSync(dirname(missing)), []);

  const path = logAt(t, '{}\n');
  for (const kind of ['open', 'stat', 'read', 'close']) {
    const fs = faultyFileSystem({ [`${kind} 1`]: { fails: 'EIO' } });
    await t.rejects(verified(path, fs), { ...UNAVAILABLE, message: /EIO/ }, kind);
    t.equal(fs.openFiles, 0, 'the file is closed');
  }
});
