import { strict as assert } from 'node:assert';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';

import type { Case } from '../faults/case.js';
import { createLedger, type Ledger } from '../faults/ledger.js';
import { serve, stop, TOKEN, type Server } from '../faults/program.js';
import { opened, parseAnswers, rawRequest } from './exchange.js';

const CLIENTS = 300;
/** How often a slow client sends a byte, in ms. */
const PACE_MS = 500;
/** How long a healthy client may wait at most: less than a slow one, on a machine that may be as slow. */
const HEALTHY_MS = 8_000;
/** What each limit may be exceeded by: its timers, and a busy machine. */
const GRACE_MS = 5_000;

const HEAD_MS = 10_000;
const BODY_MS = 30_000;

const HEAD = [
  'POST /plants HTTP/1.1',
  'Host: localhost',
  `Authorization: Bearer ${TOKEN}`,
  'Content-Type: application/json',
];

export const slowCases = (isShort: boolean): Case[] => [
  {
    promise: `${CLIENTS} clients that send a head byte by byte end with 408 after ${HEAD_MS} ms`,
    check: (folder) =>
      besideHealthy(folder, (server) => trickle(server, `${HEAD.join('\r\n')}\r\n`, HEAD_MS)),
  },
  ...(isShort ? [] : longCases),
  ...[
    ['slow headers', '-H'],
    ['slow bodies', '-B'],
    ['slow readers', '-X'],
  ].map(([what = '', mode = '']): Case => ({
    promise: `slowhttptest's ${what} keep no other client from its answer`,
    needs: ['slowhttptest'],
    check: (folder) => besideHealthy(folder, (server) => slowhttptest(server, mode)),
  })),
];

/** They wait for the limit of a body. */
const longCases: Case[] = [
  {
    promise: `${CLIENTS} clients that send a body byte by byte end with 408 after ${BODY_MS} ms`,
    check: (folder) =>
      besideHealthy(folder, (server) =>
        trickle(server, `${HEAD.join('\r\n')}\r\nContent-Length: 1000\r\n\r\n{`, BODY_MS),
      ),
  },
  {
    promise: `clients that do not read their answers are cut off after ${BODY_MS} ms`,
    check: (folder) => besideHealthy(folder, neverRead),
  },
];

/** Has a healthy client store plants all the while, and checks how long each took. */
async function besideHealthy(
  folder: string,
  attack: (server: Server, ledger: Ledger) => Promise<string>,
): Promise<string> {
  const log = join(folder, 'plants.jsonl');
  const server = await serve({ log });
  const ledger = createLedger();
  let longest = 0;
  let over = false as boolean;
  const healthy = (async () => {
    while (!over) {
      const startedAt = performance.now();
      assert.equal(await ledger.post(server, ledger.next()), 200, 'a healthy client is answered');
      longest = Math.max(longest, performance.now() - startedAt);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  })();
  try {
    const seen = await Promise.race([attack(server, ledger), healthy.then(() => '')]);
    over = true;
    await healthy;
    await stop(server);
    ledger.check(log);
    const figures = `${seen}; ${ledger.acknowledged} plants beside, each in ${Math.round(longest)} ms or less`;
    assert.ok(longest < HEALTHY_MS, figures);
    return figures;
  } finally {
    over = true;
    server.kill('SIGKILL');
  }
}

/** Sends a beginning, then byte after byte, until every connection has been closed with 408. */
async function trickle(server: Server, beginning: string, limitMs: number): Promise<string> {
  const times = await Promise.all(
    Array.from({ length: CLIENTS }, async () => {
      const socket = await opened(server.serves);
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

/** Sends the same large plant again and again, and takes no answer. */
async function neverRead(server: Server, ledger: Ledger): Promise<string> {
  const plant = ledger.next(1_000_000);
  await ledger.post(server, plant);
  const body = Buffer.from(JSON.stringify(plant));
  const request = rawRequest([...HEAD, `Content-Length: ${body.length}`], body);
  const times = await Promise.all(
    Array.from({ length: 2 }, async () => {
      const socket = (await opened(server.serves)).pause();
      const startedAt = performance.now();
      const closed = new Promise((resolve) => socket.once('close', resolve));
      // More answers than the buffers of the system hold, and fewer than there is room for; sent one
      // by one, because what is not answered yet takes more.
      for (let n = 0; n < 25 && !socket.destroyed; n++) {
        socket.write(request);
        await new Promise((resolve) => setTimeout(resolve, PACE_MS / 5));
      }
      // Who reads nothing notices only when it writes that the connection is gone.
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

async function slowhttptest({ serves }: Server, mode: string): Promise<string> {
  const url = `http://127.0.0.1:${serves}/plants`;
  const load = ['-c', '500', '-r', '250', '-l', '20', '-i', '5', '-p', '1', '-u', url];
  const { stdout } = await promisify(execFile)('slowhttptest', [mode, ...load], {
    timeout: 60_000,
  });
  const plain = stdout.replace(/\x1b\[[\d;]*m/g, '');
  const statuses = [...plain.matchAll(/service available: +(\w+)/g)].map(([, word]) => word);
  assert.ok(statuses.length > 0 && statuses.at(-1) === 'YES', plain.slice(-1_000));
  return `available ${statuses.filter((word) => word === 'YES').length} of ${statuses.length} times`;
}
