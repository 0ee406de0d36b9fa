/*
 * Requests that are generated at random, compared with an oracle. TEST_SEED repeats a run.
 */
import { strict as assert } from 'node:assert';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import fc from 'fast-check';
import t, { type Test } from 'tap';

import { parseNewPlant } from '../../dist/plant-json.js';
import { message } from '../client.js';
import { isLong, seed } from '../length.js';
import { settingsFor, stopCleanly } from '../faults/support.js';
import { scrape } from '../metrics.js';
import { start, type Program } from '../system/program.js';
import { document } from './documents.js';
import { exchange as exchangeBytes, type Answer } from './exchange.js';
import { createModel, judgeBody, same, type Model, type Plant } from './oracle.js';
import { fragments, request, type Request } from './requests.js';

const CONNECTIONS = isLong ? 10_000 : 4_000;
const runs = (share: number): fc.Parameters<unknown> => ({
  numRuns: Math.ceil(CONNECTIONS * share),
  seed,
});

t.setTimeout(300_000 + 10 * CONNECTIONS);
t.comment(`TEST_SEED=${seed}`);

t.test('generated requests get the answers of the oracle, in order', (t) =>
  withProgram(t, async ({ program, model }) => {
    const connection = fc.array(request, { minLength: 1, maxLength: 3 });
    const cuts = fc.array(fc.nat(), { maxLength: 3 });
    await fc.assert(
      fc.asyncProperty(connection, cuts, (requests, places) =>
        talk(program, model, requests, places),
      ),
      runs(0.7),
    );
  }),
);

t.test('a request with a damaged head is refused, or its plant is stored unchanged', (t) =>
  withProgram(t, async ({ program, model }) => {
    const damage = fc.tuple(fc.nat(), fc.nat({ max: 4 }), fc.uint8Array({ maxLength: 3 }));
    const id = fc.integer({ min: 1, max: 1e9 });
    const damages = fc.array(damage, { minLength: 1, maxLength: 2 });
    await fc.assert(
      fc.asyncProperty(id, damages, (number, each) => damaged(program, model, number, each)),
      runs(0.15),
    );
  }),
);

t.test('fragments of HTTP get only well-formed failures', (t) =>
  withProgram(t, async ({ program }) => {
    await fc.assert(
      fc.asyncProperty(fragments, async (bytes) => {
        const { answers, fault } = await exchange(program.port, [bytes]);
        for (const answer of answers) checkFailure(answer);
        assert.equal(fault, undefined);
      }),
      runs(0.15),
    );
  }),
);

/** The kinds of the faults of a plant, by the `error` of the answer. */
const KINDS: Readonly<Record<number, string>> = { 400: 'json', 422: 'plant' };

t.test('generated documents are judged as by the oracle', async (t) => {
  const isJudged = fc.property(document, (bytes) => {
    const verdict = judgeBody(bytes);
    if (typeof verdict === 'object') assert.ok(same(parseNewPlant(bytes), verdict));
    else assert.throws(() => parseNewPlant(bytes), { kind: KINDS[verdict] });
  });
  t.doesNotThrow(() => fc.assert(isJudged, runs(4)));
});

interface Trial {
  readonly program: Program;
  /** The plants that the program must have stored. */
  readonly model: Model;
}

/** Runs a trial of a program, stops it, and compares its log with its answers. */
async function withProgram(t: Test, trial: (trial: Trial) => Promise<void>): Promise<void> {
  const log = join(t.testdir(), 'plants.jsonl');
  const env = { ...settingsFor(log), PLANT_STORE_MONITOR_PORT: '0' };
  const program = await start(t, { env });
  const [, monitor = ''] = await program.says('stdout', /^monitor: (.*)\n/m);
  const model = createModel();
  received.clear();
  await trial({ program, model });
  t.strictSame(await published(monitor), received, 'each response is published once');
  await stopCleanly(t, program);
  t.equal(program.stderr, '', 'no fault is reported');
  checkLog(log, model);
  t.comment(`${model.stored.size} plants stored`);
}

/** How many answers a program has sent, by status. */
const received = new Map<number, number>();

const exchange: typeof exchangeBytes = async (...args) => {
  const result = await exchangeBytes(...args);
  for (const { status } of result.answers) received.set(status, (received.get(status) ?? 0) + 1);
  return result;
};

/** How many responses a program has published, by status. */
async function published(monitor: string): Promise<Map<number, number>> {
  const counts = new Map<number, number>();
  for (const [name, count] of await scrape(monitor)) {
    const [, status] = /^plant_store_http_responses_total\{status="(\d+)"/.exec(name) ?? [];
    if (status === undefined || count === 0) continue;
    counts.set(Number(status), (counts.get(Number(status)) ?? 0) + count);
  }
  return counts;
}

/** Checks that a log contains exactly the plants that were answered with 200. */
function checkLog(log: string, { stored }: Model): void {
  const left = new Map(stored);
  for (const line of readFileSync(log, 'utf8').split('\n').slice(0, -1)) {
    const id = BigInt(/^\{"id":(-?\d+),/.exec(line)?.[1] ?? NaN);
    const { name, tag } = JSON.parse(line) as Omit<Plant, 'id'>;
    const plant = left.get(id);
    assert.ok(
      plant && same(plant, { id, name, tag }),
      `${id} was answered with 200, and is in the log once`,
    );
    left.delete(id);
  }
  assert.deepEqual([...left.keys()], [], 'no plant that was answered with 200 is missing');
}

/** Sends requests over one connection in pieces, and compares each answer with the expected one. */
async function talk(
  { port }: Program,
  model: Model,
  choice: readonly Request[],
  places: readonly number[],
): Promise<void> {
  // Data sent after an answer that closes the connection could reset it before the answer is read.
  const last = choice.findIndex(({ mayClose }) => mayClose);
  const requests = last === -1 ? choice : choice.slice(0, last + 1);
  const all = Buffer.concat(requests.map(({ bytes }) => bytes));
  const cuts = [0, ...places.map((place) => place % all.length).sort((a, b) => a - b), all.length];
  const pieces = cuts.slice(1).map((cut, n) => all.subarray(cuts[n], cut));
  const isHead = (nth: number): boolean => requests[nth]?.isHead ?? false;
  const { answers, fault } = await exchange(port, pieces, isHead);
  assert.equal(fault, undefined);
  assert.ok(answers.length <= requests.length, 'no request is answered twice');
  for (const [n, { expected, isHead: isBare, isFlawed }] of requests.entries()) {
    const answer = answers[n];
    if (isFlawed && n > 0 && !answer) continue;
    assert.ok(answer, `request ${n + 1} is answered`);
    if (isPlant(expected)) {
      checkAnswer(model, expected, answer);
      continue;
    }
    const [status, error] = expected;
    assert.equal(answer.status, status, `request ${n + 1}`);
    if (!isBare) assert.equal(checkFailure(answer), error, `request ${n + 1}`);
  }
}

function isPlant(expected: Request['expected']): expected is Plant {
  return !Array.isArray(expected);
}

/** Compares the answer to a plant with the model, and updates the model. */
function checkAnswer(model: Model, plant: Plant, answer: Answer): void {
  const error = answer.status === 200 ? checkPlant(answer, plant) : checkFailure(answer);
  assert.equal(error, model.expected(plant));
  model.answered(plant, error);
}

async function damaged(
  { port }: Program,
  model: Model,
  number: number,
  damages: readonly [place: number, cut: number, put: Uint8Array][],
): Promise<void> {
  const plant: Plant = { id: BigInt(number), name: `plant ${number}` };
  const body = `{"id":${number},"name":"plant ${number}"}`;
  let head = message({ body }).subarray(0, -body.length);
  for (const [place, cut, put] of damages) {
    const at = place % head.length;
    head = Buffer.concat([head.subarray(0, at), put, head.subarray(at + cut)]);
  }
  const { answers, fault } = await exchange(port, [head, Buffer.from(body)]);
  assert.equal(fault, undefined);
  assert.ok(answers.length > 0, 'there is an answer');
  for (const answer of answers)
    if (answer.status === 200) model.answered(plant, checkPlant(answer, plant));
    else checkFailure(answer);
}

const FAILURES = [400, 401, 404, 405, 408, 413, 417, 431, 501];

/** Checks that an answer is a well-formed failure; returns its `error`. */
function checkFailure({ status, headers, body }: Answer): number {
  assert.ok(FAILURES.includes(status), `a client error: ${status}`);
  assert.equal(headers.get('content-type'), 'application/json');
  if (status === 401) assert.match(headers.get('www-authenticate') ?? '', /^Bearer realm=/);
  if (status === 405 && headers.has('allow')) assert.equal(headers.get('allow'), 'POST');
  if (body === '') return status;
  const { error, message, ...rest } = JSON.parse(body) as Record<string, unknown>;
  assert.deepEqual([typeof error, typeof message, rest], ['number', 'string', {}]);
  return error as number;
}

/** Checks that an answer is the plant that was sent. */
function checkPlant({ headers, body }: Answer, { name, tag }: Plant): 200 {
  assert.equal(headers.get('content-type'), 'application/json');
  assert.deepEqual(JSON.parse(body), tag === undefined ? { name } : { name, tag });
  return 200;
}
