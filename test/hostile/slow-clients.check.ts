/*
 * Clients that are slow on purpose: each is cut off at its limit, and a healthy client does not notice.
 * Only TEST_LENGTH=long includes those that wait for the limit of a body.
 */
import { strict as assert } from 'node:assert';
import { join } from 'node:path';

import t, { type Test } from 'tap';

import { TOKEN } from '../client.js';
import { createLedger, type Ledger } from '../faults/ledger.js';
import { settingsFor, stopCleanly } from '../faults/support.js';
import { isLong } from '../length.js';
import { start, type Program } from '../system/program.js';
import { opened, parseAnswers, rawRequest } from './exchange.js';

const CLIENTS = 300;
/** The interval at which a slow client sends a byte, in ms. */
const PACE_MS = 500;
/** The longest wait of a healthy client, on a busy machine: less than the limit of a slow one. */
const HEALTHY_MS = 8_000;
/** The tolerance of each limit, for the resolution of its timers and a busy machine. */
const GRACE_MS = 5_000;

const HEAD_MS = 10_000;
const BODY_MS = 30_000;

const HEAD = [
  'POST /plants HTTP/1.1',
  'Host: localhost',
  `Authorization: Bearer ${TOKEN}`,
  'Content-Type: application/json',
];

/** These tests spend their time waiting: they run side by side, each with a program of its own. */
const SIDE_BY_SIDE = { buffered: true };
const long = { ...SIDE_BY_SIDE, skip: !isLong && 'needs TEST_LENGTH=long' };
t.jobs = 3;

t.setTimeout(1_800_000);

t.test(
  `${CLIENTS} clients that send a head byte by byte get 408 after ${HEAD_MS} ms`,
  SIDE_BY_SIDE,
  (t) => besideHealthy(t, (program) => trickle(program, `${HEAD.join('\r\n')}\r\n`, HEAD_MS)),
);

t.test(`${CLIENTS} clients that send a body byte by byte get 408 after ${BODY_MS} ms`, long, (t) =>
  besideHealthy(t, (program) =>
    trickle(program, `${HEAD.join('\r\n')}\r\nContent-Length: 1000\r\n\r\n{`, BODY_MS),
  ),
);

t.test(`clients that do not read their answers are cut off after ${BODY_MS} ms`, long, (t) =>
  besideHealthy(t, neverRead),
);

/** Lets a healthy client store plants during an attack, and checks how long each takes. */
async function besideHealthy(
  t: Test,
  attack: (program: Program, ledger: Ledger) => Promise<string>,
): Promise<void> {
  const log = join(t.testdir(), 'plants.jsonl');
  const program = await start(t, { env: settingsFor(log) });
  const ledger = createLedger();
  let longest = 0;
  let over = false as boolean;
  const healthy = (async () => {
    while (!over) {
      const startedAt = performance.now();
      assert.equal(await ledger.post(program, ledger.next()), 200, 'a healthy client gets 200');
      longest = Math.max(longest, performance.now() - startedAt);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  })();
  try {
    t.comment(await Promise.race([attack(program, ledger), healthy.then(() => '')]));
  } finally {
    over = true;
  }
  await healthy;
  await stopCleanly(t, program);
  ledger.check(log);
  t.ok(
    longest < HEALTHY_MS,
    `${ledger.acknowledged} plants of a healthy client, each in at most ${Math.round(longest)} ms`,
  );
}

/** Sends a beginning, then byte after byte, until each connection is closed with 408. */
async function trickle(program: Program, beginning: string, limitMs: number): Promise<string> {
  const times = await Promise.all(
    Array.from({ length: CLIENTS }, async () => {
      const socket = await opened(program.port);
      const startedAt = performance.now();
      const chunks: Buffer[] = [];
      let lastAt = startedAt;
      socket.on('data', (chunk) => {
        chunks.push(chunk);
        lastAt = performance.now();
      });
      socket.write(beginning);
      const pace = setInterval(() => socket.write('a'), PACE_MS);
      await new Promise((resolve) => socket.once('close', resolve));
      clearInterval(pace);
      const { answers } = parseAnswers(Buffer.concat(chunks));
      assert.deepEqual(
        answers.map(({ status }) => status),
        [408],
      );
      return lastAt - startedAt;
    }),
  );
  const [first, last] = [Math.min(...times), Math.max(...times)];
  const figures = `answered after ${Math.round(first)} to ${Math.round(last)} ms`;
  assert.ok(first > limitMs - PACE_MS && last < limitMs + GRACE_MS, figures);
  return figures;
}

/** Sends the same large plant again and again, and reads no answer. */
async function neverRead(program: Program, ledger: Ledger): Promise<string> {
  const plant = ledger.next(1_000_000);
  await ledger.post(program, plant);
  const body = Buffer.from(JSON.stringify(plant));
  const request = rawRequest([...HEAD, `Content-Length: ${body.length}`], body);
  const times = await Promise.all(
    Array.from({ length: 2 }, async () => {
      const socket = (await opened(program.port)).pause();
      const startedAt = performance.now();
      const closed = new Promise((resolve) => socket.once('close', resolve));
      // More answers than the system buffers, but fewer than the program has room for. One by one,
      // because a request that is not answered yet takes more room.
      for (let n = 0; n < 25 && !socket.destroyed; n++) {
        socket.write(request);
        await new Promise((resolve) => setTimeout(resolve, PACE_MS / 5));
      }
      // A client that does not read notices only on a write that the connection is closed.
      const pace = setInterval(() => socket.write('P'), PACE_MS);
      await closed;
      clearInterval(pace);
      return performance.now() - startedAt;
    }),
  );
  const last = Math.max(...times);
  const figures = `cut off after ${Math.round(Math.min(...times))} to ${Math.round(last)} ms`;
  assert.ok(last < 2 * BODY_MS + GRACE_MS, figures);
  return figures;
}
