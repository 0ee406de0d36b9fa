import { strict as assert } from 'node:assert';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import fc from 'fast-check';

import type { Case } from '../faults/case.js';
import { serve, stop, TOKEN, type Server } from '../faults/program.js';
import { exchange, rawRequest, type Answer } from './exchange.js';
import { createModel, judgeBody, same, type Model, type Plant, type Verdict } from './oracle.js';
import { request, scraps, type Request } from './requests.js';
import { legal, illegal } from './suite.js';

export interface FuzzOptions {
  /** How many connections are made. */
  readonly cases: number;
  readonly seed: number;
}

export function fuzzCases({ cases, seed }: FuzzOptions): Case[] {
  const share = (part: number): number => Math.max(Math.round(cases * part), 1);
  const runs = (part: number): fc.Parameters<unknown> => ({ numRuns: share(part), seed });
  const seen = (part: number, model: Model): string =>
    `${share(part)} connections, ${model.stored.size} plants, --seed ${seed}`;
  return [
    {
      promise: 'requests by a grammar get the answers of an oracle, in order',
      check: (folder) =>
        withServer(folder, async ({ server, model }) => {
          const connection = fc.array(request, { minLength: 1, maxLength: 3 });
          const cuts = fc.array(fc.nat(), { maxLength: 3 });
          await fc.assert(
            fc.asyncProperty(connection, cuts, (requests, places) =>
              talk(server, model, requests, places),
            ),
            runs(0.7),
          );
          return seen(0.7, model);
        }),
    },
    {
      promise: 'a request with a damaged head is refused, or its plant is stored as it was sent',
      check: (folder) =>
        withServer(folder, async ({ server, model }) => {
          const damage = fc.tuple(fc.nat(), fc.nat({ max: 4 }), fc.uint8Array({ maxLength: 3 }));
          const id = fc.integer({ min: 1, max: 1e9 });
          const damages = fc.array(damage, { minLength: 1, maxLength: 2 });
          await fc.assert(
            fc.asyncProperty(id, damages, (number, each) => damaged(server, model, number, each)),
            runs(0.15),
          );
          return seen(0.15, model);
        }),
    },
    {
      promise: 'scraps of HTTP get nothing but failures in the right shape',
      check: (folder) =>
        withServer(folder, async ({ server, model }) => {
          await fc.assert(
            fc.asyncProperty(scraps, async (bytes) => {
              const { answers, fault } = await exchange(server.serves, [bytes]);
              for (const answer of answers) checkFailure(answer);
              assert.equal(fault, undefined);
            }),
            runs(0.15),
          );
          return seen(0.15, model);
        }),
    },
    {
      promise: 'every legal document that is a plant is stored, every illegal one refused',
      check: (folder) =>
        withServer(folder, async ({ server, model }) => {
          for (const [what, document] of legal) {
            const verdict = judgeBody(document);
            assert.ok(typeof verdict === 'object', `${what}: the oracle holds it for a plant`);
            await put(server, model, what, document, verdict);
          }
          for (const [what, document, error] of illegal) {
            assert.equal(judgeBody(document), error, `${what}: the oracle refuses it`);
            await put(server, model, what, document, error);
          }
          return `${legal.length} legal ones, ${illegal.length} illegal ones`;
        }),
    },
  ];
}

interface Trial {
  readonly server: Server;
  readonly model: Model;
}

/** Runs a trial of a program, stops it, and compares its log with what it has answered. */
async function withServer(folder: string, trial: (t: Trial) => Promise<string>): Promise<string> {
  const log = join(folder, 'plants.jsonl');
  const server = await serve({ log });
  const model = createModel();
  let seen: string;
  try {
    seen = await trial({ server, model });
  } catch (error) {
    server.kill('SIGKILL');
    console.log((await server.ended).stderr);
    throw error;
  }
  const { stderr } = await stop(server);
  assert.equal(stderr, '', 'it has nothing to report');
  checkLog(log, model);
  return seen;
}

/** The log holds exactly the plants that were answered with 200. */
function checkLog(log: string, { stored }: Model): void {
  const left = new Map(stored);
  for (const line of readFileSync(log, 'utf8').split('\n').slice(0, -1)) {
    const id = BigInt(/^\{"id":(-?\d+),/.exec(line)?.[1] ?? NaN);
    const { name, tag } = JSON.parse(line) as Omit<Plant, 'id'>;
    const plant = left.get(id);
    assert.ok(
      plant && same(plant, { id, name, tag }),
      `${id} was answered with 200, and is there once`,
    );
    left.delete(id);
  }
  assert.deepEqual([...left.keys()], [], 'what was answered with 200 is in the log');
}

/** Sends requests over one connection in pieces, and compares each answer with the expected one. */
async function talk(
  { serves: port }: Server,
  model: Model,
  choice: readonly Request[],
  places: readonly number[],
): Promise<void> {
  // Behind an answer that closes, a client must not send: the reset could take the answer from it.
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
      settle(model, expected, answer);
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

/** Compares the answer to a plant with the model, and notes it there. */
function settle(model: Model, plant: Plant, answer: Answer): void {
  const error = answer.status === 200 ? checkPlant(answer, plant) : checkFailure(answer);
  assert.equal(error, model.expected(plant));
  model.answered(plant, error);
}

async function damaged(
  { serves: port }: Server,
  model: Model,
  number: number,
  damages: readonly [place: number, cut: number, put: Uint8Array][],
): Promise<void> {
  const plant: Plant = { id: BigInt(number), name: `plant ${number}` };
  const body = `{"id":${number},"name":"plant ${number}"}`;
  let head = rawRequest([
    'POST /plants HTTP/1.1',
    'Host: localhost',
    `Authorization: Bearer ${TOKEN}`,
    'Content-Type: application/json',
    `Content-Length: ${body.length}`,
  ]);
  for (const [place, cut, put] of damages) {
    const at = place % head.length;
    head = Buffer.concat([head.subarray(0, at), put, head.subarray(at + cut)]);
  }
  const { answers, fault } = await exchange(port, [head, Buffer.from(body)]);
  assert.equal(fault, undefined);
  assert.ok(answers.length > 0, 'it is answered');
  for (const answer of answers)
    if (answer.status === 200) model.answered(plant, checkPlant(answer, plant));
    else checkFailure(answer);
}

const FAILURES = [400, 401, 404, 405, 408, 413, 417, 431, 501];

/** Checks that an answer is a failure, and in the right shape; returns its `error`. */
function checkFailure({ status, headers, body }: Answer): number {
  assert.ok(FAILURES.includes(status), `a failure of the client: ${status}`);
  assert.equal(headers.get('content-type'), 'application/json');
  if (status === 401) assert.match(headers.get('www-authenticate') ?? '', /^Bearer realm=/);
  if (status === 405 && headers.has('allow')) assert.equal(headers.get('allow'), 'POST');
  if (body === '') return status;
  const { error, message, ...rest } = JSON.parse(body) as Record<string, unknown>;
  assert.deepEqual([typeof error, typeof message, rest], ['number', 'string', {}]);
  return error as number;
}

/** Checks that an answer is a plant, exactly as it was sent. */
function checkPlant({ headers, body }: Answer, { name, tag }: Plant): 200 {
  assert.equal(headers.get('content-type'), 'application/json');
  assert.deepEqual(JSON.parse(body), tag === undefined ? { name } : { name, tag });
  return 200;
}

/** Sends one document. */
async function put(
  { serves: port }: Server,
  model: Model,
  what: string,
  document: Buffer,
  expected: Verdict,
): Promise<void> {
  const bytes = rawRequest(
    [
      'POST /plants HTTP/1.1',
      'Host: localhost',
      `Authorization: Bearer ${TOKEN}`,
      'Content-Type: application/json',
      `Content-Length: ${document.length}`,
    ],
    document,
  );
  const { answers, fault } = await exchange(port, [bytes]);
  const [answer] = answers;
  assert.equal(fault, undefined);
  assert.ok(answer && answers.length === 1, `${what}: it is answered once`);
  if (typeof expected === 'object') settle(model, expected, answer);
  else assert.equal(checkFailure(answer), expected, what);
}
