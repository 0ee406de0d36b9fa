/*
 * Clients that are slow on purpose: each is cut off at its limit, and a healthy client does not notice. The limits are
 * a fifth of the program's own.
 */
import { strict as assert } from 'node:assert';
import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import t from 'tap';

import { DEFAULT_LIMITS } from '../../dist/http/limits.js';
import { CONNECTION_LIMITS } from '../../dist/program/server/http-server.js';
import { FERN, message, openSocket } from '../client.js';
import { createLedger } from '../faults/ledger.js';
import { settingsFor, stopCleanly } from '../faults/support.js';
import { hasten, start } from '../system/program.js';

/** How many clients are slow in each way. */
const CLIENTS = 300;
/** The interval at which a slow client sends a byte, in ms. */
const PACE_MS = 100;
/** The longest wait of a healthy client on a busy machine, and how much later than its limit a slow one is cut off. */
const GRACE_MS = 5_000;

const TIMES = 5;
const HEAD_MS = CONNECTION_LIMITS.headersTimeout / TIMES;
const BODY_MS = DEFAULT_LIMITS.bodyTimeoutMs / TIMES;

/** A preload with which the limits of clients are a fifth of what they are. */
const IMPATIENT = `${hasten(DEFAULT_LIMITS.bodyTimeoutMs, DEFAULT_LIMITS.bodyTimeoutMs, TIMES)}
import http from 'node:http';
import { syncBuiltinESMExports } from 'node:module';
const { createServer } = http;
http.createServer = (options) =>
  createServer({ ...options, headersTimeout: ${HEAD_MS}, connectionsCheckingInterval: ${PACE_MS} });
syncBuiltinESMExports();`;

t.test(
  `${2 * CLIENTS} clients that send byte by byte get 408, and a healthy one 200`,
  async (t) => {
    const log = join(t.testdir(), 'plants.jsonl');
    const program = await start(t, { env: settingsFor(log), preload: IMPATIENT });
    const ledger = createLedger();
    const head = message().subarray(0, -FERN.length - 2);
    const body = message({ headers: { 'Content-Length': '1000' }, body: '{' });
    const slow = Array.from({ length: CLIENTS }, () => [
      trickle(program.port, head, HEAD_MS),
      trickle(program.port, body, BODY_MS),
    ]);
    let areCutOff = false as boolean;
    const cutOff = Promise.all(slow.flat()).finally(() => (areCutOff = true));
    let longest = 0;
    while (!areCutOff) {
      const startedAt = performance.now();
      assert.equal(await ledger.post(program, ledger.next()), 200);
      longest = Math.max(longest, performance.now() - startedAt);
      await sleep(20);
    }
    const times = await cutOff;
    await stopCleanly(t, program);
    ledger.check(log);
    t.comment(`cut off after ${Math.min(...times)} to ${Math.max(...times)} ms`);
    const plants = `${ledger.acknowledged} plants of a healthy client`;
    t.ok(longest < GRACE_MS, `${plants} are stored, each in at most ${Math.round(longest)} ms`);
  },
);

/** Sends a beginning, then byte after byte, until it is answered with 408, which it has to be at a limit. */
async function trickle(port: number, beginning: Buffer, limitMs: number): Promise<number> {
  const startedAt = performance.now();
  const socket = await openSocket(port);
  const answered = once(socket, 'data');
  socket.write(beginning);
  const pace = setInterval(() => socket.write('a'), PACE_MS);
  const [answer] = (await answered) as [Buffer];
  clearInterval(pace);
  socket.destroy();
  assert.match(String(answer), /^HTTP\/1\.1 408 /);
  const ms = Math.round(performance.now() - startedAt);
  assert.ok(ms > 0.9 * limitMs && ms < limitMs + GRACE_MS, `cut off after ${ms} ms`);
  return ms;
}
