/*
 * Clients that pipeline plants over TLS and read slowly, while the disk is slow: each 200 has its line in the log, and
 * each line its request. With TEST_LENGTH=long, this takes an hour.
 */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import t from 'tap';

import { createPlantHandler, openPlantLog } from '../../dist/index.js';
import { chunk, CHUNKED, message, parseAnswers, TOKEN, type Answer } from '../client.js';
import { startServer, tlsMaterial } from '../connection-close/support.js';
import { createLedger, type Plant } from '../faults/ledger.js';
import { byLength } from '../length.js';
import { storeOf } from '../stores.js';
import { connectWithRecords } from '../tls-records.js';
import { record } from './exchange.js';

const CLIENTS = 4;
/** How many connections each of them opens, one after the other: in short, one for each way to send. */
const CONNECTIONS = byLength(12, 120, 12_000);
/** The lengths of names, and how many plants a client sends on a connection. */
const SIZES = [
  [10, 1_000],
  [700, 500],
  [6_000, 150],
] as const;

/**
 * The parts of a request, each of which comes in a TLS record of its own: the head and the body in two chunks or
 * pieces, or, if it is split, two parts with any byte between them.
 */
function partsOf(plant: Plant, isChunked: boolean, isSplit: boolean): Buffer[] {
  const body = Buffer.from(JSON.stringify(plant));
  const halves = [body.subarray(0, body.length / 2), body.subarray(body.length / 2)];
  const headers = isChunked ? CHUNKED : { 'Content-Length': String(body.length) };
  const parts = [
    message({ headers, body: '' }),
    ...(isChunked ? [...halves, ''].map(chunk) : halves),
  ];
  if (!isSplit) return parts;
  const bytes = Buffer.concat(parts);
  const at = 1 + (plant.id % (bytes.length - 1));
  return [bytes.subarray(0, at), bytes.subarray(at)];
}

/** Sends all parts, and reads answers with a pause after each packet, until there are enough or no more. */
async function answersTo(port: number, parts: readonly Buffer[], count: number, pauseMs: number) {
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
      if (found.length >= count) resolve();
    });
    socket.on('error', () => undefined).on('end', resolve);
  });
  await client.send(parts);
  await over;
  transport.destroy();
  return found;
}

t.setTimeout(7_200_000);

t.test('a client that pipelines over TLS gets no 200 for a plant that is not stored', async (t) => {
  const path = join(t.testdir(), 'plants.jsonl');
  const log = await openPlantLog(path);
  const store = storeOf(async (plant) => {
    // The answers to later plants wait for that to a slow one.
    if (plant.id % 40n === 0n) await sleep(20);
    return log.add(plant);
  });
  const handler = createPlantHandler({ store, tokens: [TOKEN] });
  const port = await startServer(t, handler, { tls: tlsMaterial() });
  const ledger = createLedger();
  /** How many connections had all of their answers, and how many were closed before. */
  const connections = { complete: 0, cut: 0 };

  async function client(first: number): Promise<void> {
    for (let n = first; n < first + CONNECTIONS; n++) {
      const [length, count] = SIZES[n % SIZES.length] ?? SIZES[0];
      const plants = Array.from({ length: count }, () => ledger.next(length));
      const parts = plants.flatMap((plant) => partsOf(plant, (n >> 1) % 2 === 0, n % 2 === 0));
      const answers = await answersTo(port, parts, count, n % 4);
      for (const [nth, plant] of plants.entries()) record(ledger, plant, answers[nth]);
      connections[answers.length === count ? 'complete' : 'cut']++;
    }
  }

  await Promise.all(Array.from({ length: CLIENTS }, (_, nth) => client(nth)));
  await log.close();
  ledger.check(path);
  t.comment(JSON.stringify(connections));
  t.ok(connections.cut > 0, 'node:http has lost bytes');
  t.ok(connections.complete > 0);
});
