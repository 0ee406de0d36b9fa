/*
 * Clients that pipeline plants over TLS and read slowly, while the disk is slow: each 200 has its line in the log, and
 * each line its request. With TEST_LENGTH=long, this takes an hour.
 */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import t from 'tap';

import { createPlantHandler, openPlantLog, readPlantLog } from '../../dist/index.js';
import { createListener } from '../../dist/program/listener.js';
import { selfSigned } from '../certificate.js';
import { chunk, CHUNKED, message, TOKEN } from '../client.js';
import { byLength } from '../length.js';
import { LISTENER } from '../service.js';
import { storeOf } from '../stores.js';
import { connectWithRecords } from '../tls-records.js';
import { parseAnswers, type Answer } from './exchange.js';

const CLIENTS = 4;
/** How many connections each of them opens, one after the other: in short, one for each way to send. */
const CONNECTIONS = byLength(12, 120, 12_000);
/** How long the disk takes for a plant. The answers to later plants wait for that to a slow one. */
const delayOf = (id: bigint): number => (id % 40n === 0n ? 20 : 0);
/** The lengths of names, and how many plants a client sends on a connection. */
const SIZES = [
  [10, 1_000],
  [700, 500],
  [6_000, 150],
] as const;

const tls = selfSigned();
let lastId = 0;

interface Request {
  readonly id: number;
  readonly name: string;
  /** Each in a TLS record of its own. */
  readonly parts: readonly Buffer[];
}

/** A request in chunks or with a length, as its head and its chunks, or split at one byte after the other. */
function makeRequest(length: number, isChunked: boolean, isSplit: boolean): Request {
  const id = ++lastId;
  const name = `${id} `.padEnd(length, 'x');
  const body = JSON.stringify({ id, name });
  const half = body.length >> 1;
  const chunks = [body.slice(0, half), body.slice(half)];
  const parts = isChunked
    ? [message({ headers: CHUNKED, body: '' }), ...[...chunks, ''].map(chunk)]
    : [
        message({ headers: { 'Content-Length': String(body.length) }, body: '' }),
        ...chunks.map((each) => Buffer.from(each)),
      ];
  if (!isSplit) return { id, name, parts };
  const bytes = Buffer.concat(parts);
  const at = 1 + (id % (bytes.length - 1));
  return { id, name, parts: [bytes.subarray(0, at), bytes.subarray(at)] };
}

/** Reads answers, with a pause after each packet, until there are `count` of them or the connection is closed. */
async function readAnswers(port: number, requests: readonly Request[], pauseMs: number) {
  const client = await connectWithRecords(port);
  const { transport, socket } = client;
  transport.on('data', () => {
    transport.pause();
    setTimeout(() => transport.resume(), pauseMs);
  });
  const found: Answer[] = [];
  const over = new Promise<void>((resolve) => {
    let received: Buffer = Buffer.alloc(0);
    socket.on('data', (data) => {
      const { answers, rest } = parseAnswers(Buffer.concat([received, data]));
      received = rest;
      found.push(...answers);
      if (found.length >= requests.length) resolve();
    });
    socket.on('error', () => undefined).on('end', () => resolve());
  });
  await client.send(requests.flatMap(({ parts }) => parts));
  await over;
  transport.destroy();
  return found;
}

t.setTimeout(7_200_000);

t.test('a client that pipelines over TLS gets no 200 for a plant that is not stored', async (t) => {
  const path = join(t.testdir(), 'plants.jsonl');
  const log = await openPlantLog(path);
  const store = storeOf(async (plant) => {
    if (delayOf(plant.id) > 0) await sleep(delayOf(plant.id));
    return log.add(plant);
  });
  const { cert, key } = tls;
  const listener = createListener({
    ...LISTENER,
    handler: createPlantHandler({ store, tokens: [TOKEN] }),
    tls: { cert: Buffer.from(cert), key: Buffer.from(key) },
  });
  const port = Number(new URL(await listener.listen('127.0.0.1', 0)).port);
  const sent = new Map<bigint, string>();
  const acknowledged = new Set<bigint>();
  const faults: string[] = [];
  /** How many connections had all of their answers, and how many were closed before. */
  const connections = { complete: 0, cut: 0 };

  async function client(first: number): Promise<void> {
    for (let n = first; n < first + CONNECTIONS; n++) {
      const [length, count] = SIZES[n % SIZES.length] ?? SIZES[0];
      const requests = Array.from({ length: count }, () =>
        makeRequest(length, (n >> 1) % 2 === 0, n % 2 === 0),
      );
      for (const { id, name } of requests) sent.set(BigInt(id), name);
      const found = await readAnswers(port, requests, n % 4);
      found.forEach(({ status, body }, nth) => {
        const request = requests[nth];
        const isTheirs =
          request && status === 200 && body === JSON.stringify({ name: request.name });
        if (isTheirs) acknowledged.add(BigInt(request.id));
        // The memory for requests is bounded, and a client on a busy machine may be late.
        else if (status !== 503 && status !== 408)
          faults.push(`answer ${nth} to ${count}: ${status} ${body.slice(0, 80)}`);
      });
      connections[found.length === count ? 'complete' : 'cut']++;
    }
  }

  await Promise.all(Array.from({ length: CLIENTS }, (_, nth) => client(nth)));
  await listener.stop(60_000);
  await log.close();
  t.strictSame(faults.slice(0, 10), [], 'each answer is that to its request');
  for await (const { id, name } of readPlantLog(path)) {
    if (sent.get(id) !== name) t.fail(`plant ${id} was not sent: ${name.slice(0, 80)}`);
    acknowledged.delete(id);
  }
  t.equal(acknowledged.size, 0, 'each plant with a 200 is in the log');
  t.comment(JSON.stringify(connections));
  t.ok(connections.cut > 0, 'node:http has lost bytes');
  t.ok(connections.complete > 0);
});
