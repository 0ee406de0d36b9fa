/* Tests the helpers that judge the program in many tests: they have to find what is wrong. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';

import t from 'tap';

import { expectConformance } from './conformance.js';
import { createLedger, type Plant } from './load.js';

t.test('exactly() matches only lists with the same number of elements', async (t) => {
  const { href } = new URL('exactly.js', import.meta.url);
  const judges = `import t from 'tap';
import { exactly } from '${href}';
for (const list of [[], [1], [2], [1, 2]]) t.match(list, exactly(1), JSON.stringify(list));
t.match([], exactly());
t.match([1], exactly(), 'none');`;
  const file = join(t.testdir({ 'judges.js': judges }), 'judges.js');
  const { stdout } = spawnSync(process.execPath, [file], { encoding: 'utf8' });
  t.strictSame(stdout.match(/^ok \d+|^not ok \d+/gm), [
    'not ok 1',
    'ok 2',
    'not ok 3',
    'not ok 4',
    'ok 5',
    'not ok 6',
  ]);
});

/** The line of a log with a plant. */
function lineOf(plant: Plant): string {
  const text = JSON.stringify(plant).slice(0, -1);
  return `${text},"crc32":${crc32(text)}}\n`;
}

t.test('a ledger finds each acknowledged plant that is missing from a log', async (t) => {
  const ledger = createLedger();
  const [stored, refused, lost] = [ledger.next(), ledger.next(), ledger.next()];
  ledger.record(stored, 200);
  ledger.record(refused, 503);
  ledger.record(lost, 200);
  t.equal(ledger.acknowledged, 2);
  t.equal(ledger.lost(Buffer.from(lineOf(stored))), 1);
  t.throws(() => ledger.expectNothingLost(Buffer.from(lineOf(stored))), { name: 'AssertionError' });
  const all = lineOf(stored) + lineOf(refused) + lineOf(lost);
  t.equal(ledger.lost(Buffer.from(all)), 0);

  const wrong: Record<string, string> = {
    'another plant': lineOf({ ...stored, name: 'a weed' }),
    'a plant without its tag': lineOf({ id: stored.id, name: stored.name }),
    'a plant that nobody has sent': lineOf({ id: 99, name: 'a weed' }),
    'a plant twice': lineOf(stored) + lineOf(stored),
    'a wrong checksum': lineOf(stored).replace(/\d\}$/m, (end) => `${9 - parseInt(end)}}`),
    'a part of a line': lineOf(stored).slice(0, -1),
  };
  for (const [what, log] of Object.entries(wrong))
    t.throws(() => ledger.lost(Buffer.from(log)), { name: 'AssertionError' }, what);
});

t.test('an answer conforms only if the OpenAPI document describes all of it', async (t) => {
  const json = { 'content-type': 'application/json' };
  const plant = { status: 200, headers: json, body: '{"name":"fern"}' };
  const failure = {
    status: 503,
    headers: { ...json, 'retry-after': '1' },
    body: '{"error":503,"message":"later"}',
  };
  for (const answer of [plant, failure]) t.doesNotThrow(() => expectConformance(answer));
  const wrong = {
    'another status': { ...plant, status: 201 },
    'another media type': { ...plant, headers: { 'content-type': 'text/plain' } },
    'a missing header': { ...failure, headers: json },
    'a plant without a name': { ...plant, body: '{}' },
    'a body of another status': { ...failure, body: plant.body },
    'no body': { ...plant, body: '' },
  };
  for (const [what, answer] of Object.entries(wrong))
    t.throws(() => expectConformance(answer), Error, what);
});
