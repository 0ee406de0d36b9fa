/*
 * Ends the program with SIGKILL at random moments under load, and looks for every acknowledged plant.
 * TEST_SEED repeats plants and moments, as far as the system lets it.
 */
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { crc32 } from 'node:zlib';

import t, { type Test } from 'tap';

import { connect, message, TOKEN, type Client } from '../client.js';
import { byLength, seed } from '../length.js';
import { start, type Program } from './program.js';

const ROUNDS = byLength(2, 50, 200);

const CLIENTS = 32;
/** The longest time from the first plant to the SIGKILL, in ms. */
const MAX_LIFE_MS = 250;

interface Plant {
  readonly id: number;
  readonly name: string;
  readonly tag?: string;
}

/** What the clients of a round know. */
interface Knowledge {
  /** Every plant that was sent, by its id. */
  readonly sent: Map<number, Plant>;
  /** The ids of those that were answered with 200. */
  readonly stored: Set<number>;
}

/** Numbers from 0 up to but not including 1, the same ones for the same seed (mulberry32). */
function randomNumbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let bits = Math.imul(state ^ (state >>> 15), state | 1);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A plant with an id of its own; now and then one so large that its write may be cut short. */
function growPlant(sent: Map<number, Plant>, random: () => number): Plant {
  let id: number;
  do id = Math.floor((random() - 0.5) * 2 * Number.MAX_SAFE_INTEGER);
  while (sent.has(id));
  const length = (random() < 0.02 ? 20_000 : 10) * random();
  const name = 'Boston fern \u{1f33f} "\\\n'.repeat(length);
  const plant = random() < 0.5 ? { id, name } : { id, name, tag: 'indoor' };
  sent.set(id, plant);
  return plant;
}

/** Sends plants one after another until there are no more, or the program has ended. */
async function send(
  t: Test,
  client: Client,
  nextPlant: () => Plant | undefined,
  { stored }: Knowledge,
): Promise<void> {
  for (let plant = nextPlant(); plant; plant = nextPlant()) {
    client.send(message({ body: JSON.stringify(plant) }));
    const answer = await client.answer().catch(() => undefined);
    if (!answer) return;
    if (answer.status === 200) stored.add(plant.id);
    else t.fail(`the answer is ${answer.text}`);
  }
}

function connectAll(t: Test, { port }: Program): Promise<Client[]> {
  return Promise.all(Array.from({ length: CLIENTS }, () => connect(t, port)));
}

/** The plants of a log, by their ids. Throws if a line is not whole, or an id is there twice. */
function plantsIn(path: string): Map<number, Plant> {
  const plants = new Map<number, Plant>();
  const lines = readFileSync(path, 'utf8').split('\n');
  if (lines.pop() !== '') throw new Error('the last line is not whole');
  for (const line of lines) {
    const { crc32: checksum, ...plant } = JSON.parse(line) as Plant & { crc32: number };
    if (crc32(line.slice(0, line.lastIndexOf(',"crc32":'))) !== checksum)
      throw new Error(`the line of ${plant.id} is not whole`);
    if (plants.has(plant.id)) throw new Error(`${plant.id} is there twice`);
    plants.set(plant.id, plant);
  }
  return plants;
}

/** Checks that a log has all that was stored, and nothing that was not sent. */
function check(t: Test, { log, plants }: Program, { sent, stored }: Knowledge): void {
  const found = plantsIn(log);
  const lost = [...stored].filter((id) => !found.has(id));
  const strange = [...found].filter(([id, plant]) => !same(plant, sent.get(id)));
  t.strictSame(lost, [], `all ${stored.size} plants that were answered with 200 are there`);
  t.strictSame(strange, [], `all ${found.size} plants that are there were sent`);
  t.equal(plants, found.size, 'the program has read all of them');
}

function same(one: Plant, other: Plant | undefined): boolean {
  return one.name === other?.name && one.tag === other.tag;
}

t.setTimeout(0);
t.comment(`TEST_SEED=${seed}`);

for (let round = 1; round <= ROUNDS; round++)
  t.test(`round ${round} of ${ROUNDS}: every acknowledged plant survives SIGKILL`, async (t) => {
    const random = randomNumbers(seed + round);
    const options = {
      cwd: t.testdir(),
      env: { PLANT_STORE_TOKEN: TOKEN, PLANT_STORE_FILE: 'plants.jsonl' },
    };
    const knowledge: Knowledge = { sent: new Map(), stored: new Set() };
    const { sent, stored } = knowledge;

    const first = await start(t, options);
    const sending = (await connectAll(t, first)).map((client) =>
      send(t, client, () => growPlant(sent, random), knowledge),
    );
    await sleep(MAX_LIFE_MS * random());
    t.strictSame(await first.stop('SIGKILL'), { code: null, signal: 'SIGKILL' });
    await Promise.all(sending);

    const second = await start(t, options);
    check(t, second, knowledge);
    const again = [...sent.values()];
    await Promise.all(
      (await connectAll(t, second)).map((client) => send(t, client, () => again.pop(), knowledge)),
    );
    t.equal(stored.size, sent.size, 'every plant that is sent again is stored');
    t.strictSame(await second.stop('SIGKILL'), { code: null, signal: 'SIGKILL' });
    check(t, { ...second, plants: sent.size }, knowledge);
  });
