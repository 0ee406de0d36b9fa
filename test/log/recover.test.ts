import { appendFileSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { gzipSync } from 'node:zlib';

import t from 'tap';

import type { ReadingOptions } from '../../dist/log/check.js';
import { openLog, openPlantLog } from '../../dist/log/log.js';
import { readPlantLog, verifyLog } from '../../dist/log/read.js';
import { repairLog } from '../../dist/log/repair.js';
import { nodeSystem, type System } from '../../dist/log/system.js';
import { exactly } from '../helpers/exactly.js';
import { FERN, IVY, manyPlants, MOSS, REED } from '../helpers/plants.js';
import { collect } from '../helpers/stores.js';
import {
  contentOf,
  createGate,
  faultyFileSystem,
  lineOf,
  logAt,
  logOf,
  nameOfKept,
  UNAVAILABLE,
} from './support.js';

const PLANTS = [FERN, IVY, MOSS];
const TEXT = PLANTS.map(lineOf).join('');
const CONTENT = logOf(PLANTS);

const OAK = { id: 6n, name: 'oak' };
const TORN = Buffer.from(lineOf(REED).slice(0, 19), 'latin1');

const tails: Record<string, Buffer> = {
  'one byte': Buffer.from('{'),
  'a page of NUL bytes': Buffer.alloc(4096),
  'two bytes of a record, then NUL bytes': Buffer.from('{"'.padEnd(5000, '\0')),
  'more than is read at once': Buffer.from(`{"id":5,"name":"${'x'.repeat(200_000)}`),
};

/** Tails with which no write of a log begins. */
const otherTails: Record<string, Buffer> = {
  'bytes that are no text': Buffer.from([0xff, 0xfe, 0x00, 0x80, 0x0d]),
  'the end of a file of DOS': Buffer.from('\x1a'),
  'some text': Buffer.alloc(200_000, 'x'),
};

for (const [what, tail] of Object.entries({ ...tails, ...otherTails }))
  t.test(`a torn tail is copied to another file, then cut off: ${what}`, async (t) => {
    for (const plants of what in tails ? [[], PLANTS] : [PLANTS]) {
      const before = logOf(plants);
      const content = Buffer.concat([before, tail]);
      const path = logAt(t, content);
      const copy = join(dirname(path), nameOfKept('torn', tail.toString('latin1')));
      const reports: string[] = [];
      const log = await openPlantLog(path, { report: (message) => reports.push(message) });
      t.equal(log.size, plants.length);
      const bytes = tail.length === 1 ? '1 byte' : `${tail.length} bytes`;
      t.strictSame(reports, [`${path}: moved ${bytes} of an incomplete write to ${copy}`]);
      t.equal(statSync(copy).mode & 0o777, 0o600);

      t.equal(await log.add(REED), 'created');
      await log.close();
      t.strictSame(contentOf(dirname(path)), {
        'plants.jsonl': logOf([...plants, REED]).toString('latin1'),
        [basename(copy)]: tail.toString('latin1'),
      });
    }
  });

t.test('a last line that lacks only its newline is kept, and gets the newline', async (t) => {
  const reported = t.capture(console, 'error', () => undefined);
  const lines = [lineOf(REED), lineOf({ ...REED, name: '"' })];
  for (const line of lines)
    for (const zeros of ['', '\0', '\0'.repeat(600)]) {
      const path = logAt(t, `${TEXT}${line.slice(0, -1)}${zeros}`);
      const log = await openPlantLog(path);
      const message = `plant-store: ${path}: the last line lacked its newline, which was added`;
      t.strictSame(reported.args().at(-1), [message], 'on the console by default');
      t.equal(log.size, PLANTS.length + 1);
      t.equal(log.bytes, (TEXT + line).length);
      await t.rejects(log.add({ ...REED, name: 'oak' }), { code: 'conflict' });
      t.equal(await log.add(OAK), 'created');
      await log.close();
      t.strictSame(contentOf(dirname(path)), {
        'plants.jsonl': TEXT + line + lineOf(OAK),
        ...(zeros && { [nameOfKept('torn', zeros)]: zeros }),
      });
    }
});

t.test('a last line that another process completes meanwhile is not changed', async (t) => {
  const path = logAt(t, lineOf(REED).slice(0, -1));
  // The log reads the size of the file right before it writes.
  const fs: System = {
    ...nodeSystem,
    statSync(...args) {
      appendFileSync(path, '\n');
      return nodeSystem.statSync(...args);
    },
  };
  await t.rejects(openLog(fs, path), { code: 'unavailable', message: /modified/ });
  t.equal(readFileSync(path, 'latin1'), lineOf(REED));
});

/** Files that are no logs. */
const OTHER_FILES: Record<string, string | Buffer> = {
  'minified JSON': '{"host":"127.0.0.1","port":8080}',
  JSON: JSON.stringify({ id: 7, name: ['fern'] }, undefined, 2),
  'an array of plants': '[{"id":7,"name":"fern"}]\n',
  CSV: 'id,name\n7,fern\n',
  'a newline': '\n',
  'a log in UTF-16': Buffer.from(`\ufeff${String(CONTENT)}`, 'utf16le'),
  'a compressed log': gzipSync(CONTENT),
  ...otherTails,
};

t.test('a file that is no log is not read, and not changed by a start or a repair', async (t) => {
  for (const [what, content] of Object.entries(OTHER_FILES)) {
    const path = logAt(t, content);
    const message = `${path}: it is not a log of plants; nothing was changed`;
    await t.rejects(openPlantLog(path), { code: 'unavailable', message }, what);
    await t.rejects(repairLog(nodeSystem, path), { code: 'unavailable', message }, what);
    await t.rejects(collect(readPlantLog(path)), { code: 'unavailable', message }, what);
    t.ok(readFileSync(path).equals(Buffer.from(content)), what);
    t.strictSame(readdirSync(dirname(path)), ['plants.jsonl']);
  }
});

t.test('a torn record shows that a file is a log, even if all lines are damaged', async (t) => {
  const path = logAt(t, `x\n${String(TORN)}`);
  await t.rejects(openPlantLog(path), { code: 'damaged', message: /: line 1, at byte 0/ });
});

t.test('a tail that another process completes meanwhile is not cut off', async (t) => {
  const reed = lineOf(REED);
  const path = logAt(t, TORN);
  const gate = createGate();
  const opening = openLog(faultyFileSystem({ 'write 1': { hangs: gate } }), path);
  await gate.reached;
  appendFileSync(path, reed.slice(TORN.length), 'latin1');
  gate.open();
  await t.rejects(opening, { code: 'unavailable', message: /modified/ });
  t.equal(readFileSync(path, 'latin1'), reed);
});

/**
 * What verifying a log finds: the number of plants, the byte offset at which the last line ends,
 * the torn tail, and all damaged lines.
 */
async function verified(path: string, fs: System = nodeSystem) {
  const all: object[] = [];
  let found = { plants: 0, end: 0, torn: '' };
  for await (const { offset: start, bytes, plants, end, damaged, torn } of verifyLog(fs, path)) {
    for (const { number, offset, length, damage } of damaged) {
      const text = bytes.toString('latin1', offset - start, offset - start + length);
      all.push({ line: number, offset, reason: damage, text });
    }
    found = { plants, end, torn: String(torn) };
  }
  return { ...found, damaged: all };
}

t.test('verifying finds each damaged line with its number, offset and reason', async (t) => {
  const [fern, ivy, moss] = [lineOf(FERN), lineOf(IVY), lineOf(MOSS)];
  const flipped = fern.replace('fern', 'farn');
  const noJson = /^body: must be one JSON text in UTF-8; it is not valid/;
  const lines: readonly (readonly [line: string, reason?: string | RegExp])[] = [
    [flipped, 'crc32: does not match the plant'],
    [ivy],
    ['\n', 'it is blank'],
    [ivy, `it repeats the id of the line at byte ${flipped.length}`],
    [moss],
    [`${'x'.repeat(300_000)}\n`, noJson],
    ['{}\n', /^id: must be an integer .*; name: must be a string$/],
  ];
  const torn = '{"id":';
  const whole = lines.map(([line]) => line).join('');
  const path = logAt(t, whole + torn);
  let offset = 0;
  const damaged = lines.flatMap(([text, reason], n) => {
    offset += text.length;
    return reason ? [{ line: n + 1, offset: offset - text.length, reason, text }] : [];
  });
  const found = await verified(path);
  t.match(found, { plants: 2, end: whole.length, torn, damaged: exactly(...damaged) });
  t.strictSame(contentOf(dirname(path)), { 'plants.jsonl': whole + torn }, 'nothing is changed');
});

t.test('verifying can be left early, and then closes the file', async (t) => {
  const fs = faultyFileSystem();
  const path = logAt(t, logOf(manyPlants(3_000)));
  for await (const { plants } of verifyLog(fs, path)) {
    t.ok(plants < 3_000);
    break;
  }
  t.equal(fs.openFiles, 0);
});

t.test('verifying checks lines that a server appends, and its progress ends at 1', async (t) => {
  const plants = manyPlants(6_000);
  const first = logOf(plants.slice(0, 3_000));
  const path = logAt(t, first);
  const progress: [bytes: number, totalBytes: number][] = [];
  const options = { onProgress: (...each: [number, number]) => progress.push(each) };
  let found = 0;
  for await (const part of verifyLog(nodeSystem, path, options)) {
    if (found === 0) appendFileSync(path, logOf(plants.slice(3_000)));
    found = part.plants;
  }
  t.equal(found, plants.length);
  t.ok(progress.every(([bytes, total]) => bytes <= total && total === first.length));
  t.strictSame(progress.at(-1), [first.length, first.length]);
});

t.test('reading a log stops when a signal is aborted, and changes nothing', async (t) => {
  const content = `x\n${logOf(manyPlants(3_000)).toString('latin1')}{"id":`;
  const readers: Record<string, (path: string, options: ReadingOptions) => Promise<unknown>> = {
    open: openPlantLog,
    'open an empty log': openPlantLog,
    repair: (path, options) => repairLog(nodeSystem, path, options),
    verify: (path, options) => Readable.from(verifyLog(nodeSystem, path, options)).toArray(),
  };
  const contents: Record<string, string> = { open: content.slice(2), 'open an empty log': '' };
  for (const [what, read] of Object.entries(readers)) {
    const path = logAt(t, contents[what] ?? content);
    const stop = new AbortController();
    const onProgress = () => stop.abort(new Error('enough'));
    // An empty log has no lines between which the reading could be aborted.
    if (contents[what] === '') onProgress();
    const reading = read(path, { signal: stop.signal, onProgress });
    await t.rejects(reading, { ...UNAVAILABLE, cause: { message: 'enough' } }, what);
    t.strictSame(readdirSync(dirname(path)), ['plants.jsonl']);
  }
});

t.test('a log that cannot be read is not verified, and not created', async (t) => {
  const missing = logAt(t);
  await t.rejects(verified(missing), { ...UNAVAILABLE, message: /plants\.jsonl: .*ENOENT/ });
  t.strictSame(readdirSync(dirname(missing)), []);
  await t.rejects(verified('/dev/null'), { ...UNAVAILABLE, message: /not a regular file$/ });

  const path = logAt(t, '{}\n');
  for (const kind of ['open', 'fstat', 'read', 'close']) {
    const fs = faultyFileSystem({ [`${kind} 1`]: { fails: 'EIO' } });
    await t.rejects(verified(path, fs), { ...UNAVAILABLE, message: /EIO/ }, kind);
    t.equal(fs.openFiles, 0, 'the file is closed');
  }
});
