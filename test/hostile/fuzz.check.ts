/*
 * Requests that are generated at random, compared with an oracle. TEST_SEED repeats a run.
 */
import { strict as assert } from 'node:assert';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';

import fc from 'fast-check';
import t from 'tap';

import { readPlantLog, type NewPlant } from '../../dist/index.js';
import { isLong, seed } from '../helpers/effort.js';
import { settingsFor, start, stopCleanly } from '../helpers/program.js';
import { exchange } from './exchange.js';
import { request, type Request } from './requests.js';

const CONNECTIONS = isLong ? 10_000 : 2_000;

t.setTimeout(300_000 + 10 * CONNECTIONS);
t.comment(`TEST_SEED=${seed}`);

/** The plants that were answered with 200, by their ids. */
type Stored = Map<bigint, NewPlant>;

t.test('generated requests get the answers of the oracle, in order', async (t) => {
  const log = join(t.testdir(), 'plants.jsonl');
  const program = await start(t, { env: settingsFor(log) });
  const stored: Stored = new Map();
  const connection = fc.array(request, { minLength: 1, maxLength: 3 });
  const cuts = fc.array(fc.nat(), { maxLength: 3 });
  const isTrue = fc.asyncProperty(connection, cuts, (requests, places) =>
    talk(program.port, stored, requests, places),
  );
  await fc.assert(isTrue, { numRuns: CONNECTIONS, seed });
  await stopCleanly(t, program);
  t.equal(program.stderr, '', 'no fault is reported');
  const inLog: (readonly [bigint, NewPlant])[] = [];
  for await (const plant of readPlantLog(log)) inLog.push([plant.id, plant]);
  assert.equal(inLog.length, stored.size, 'the log has each of them once');
  assert.deepEqual(new Map(inLog), stored, 'the log has these plants and no other');
  t.comment(`${stored.size} plants stored`);
});

/** Sends requests over one connection in pieces, and compares each answer with the expected one. */
async function talk(
  port: number,
  stored: Stored,
  choice: readonly Request[],
  places: readonly number[],
): Promise<void> {
  // Data sent after an answer that closes the connection could reset it before the answer is read.
  const last = choice.findIndex(({ mayClose }) => mayClose);
  const requests = last === -1 ? choice : choice.slice(0, last + 1);
  const all = Buffer.concat(requests.map(({ bytes }) => bytes));
  const cuts = [0, ...places.map((place) => place % all.length).sort((a, b) => a - b), all.length];
  const pieces = cuts.slice(1).map((cut, n) => all.subarray(cuts[n], cut));
  const answers = await exchange(port, pieces);
  // Answers have the order of their requests. Plants may be stored in another one: a body in chunks is read at once. So
  // of several plants with one id, any may be the first.
  for (const [n, { expected }] of requests.entries())
    if ('id' in expected && answers[n]?.status === 200 && !stored.has(expected.id))
      stored.set(expected.id, expected);
  assert.deepEqual(
    answers.map(({ status, body }) =>
      status === 200 ? body : [status, (JSON.parse(body) as { error: number }).error],
    ),
    requests.map(({ expected }) => answerTo(expected, stored)),
  );
}

/** The body of a 200, or the status and the `error` of a failure. */
function answerTo(expected: Request['expected'], stored: Stored): string | readonly number[] {
  if (!('id' in expected)) return expected;
  const { id, ...members } = expected;
  const isStored = isDeepStrictEqual(stored.get(id) ?? expected, expected);
  return isStored ? JSON.stringify(members) : [400, 409];
}
