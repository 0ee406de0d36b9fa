import { strict as assert } from 'node:assert';
import { readFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { crc32 } from 'node:zlib';

import { TOKEN, type Server } from './program.js';

export interface Plant {
  readonly id: number;
  readonly name: string;
  readonly tag?: string;
}

/** The status of an answer; `undefined` if there was none. */
export type Status = number | undefined;

/** What was sent to the program, and what it has acknowledged: the truth that a log is held to. */
export interface Ledger {
  /** How many plants were answered with 200. */
  readonly acknowledged: number;
  /** Whether a 200 counts: it does not while nobody would hear it. */
  heard: boolean;
  /** How often each status came. */
  readonly statuses: ReadonlyMap<Status, number>;
  /** A plant with an id of its own and a name of about so many bytes. */
  next(bytes?: number): Plant;
  /** Sends a plant, and notes what becomes of it. */
  post(server: Server, plant: Plant): Promise<Status>;
  /**
   * How many of the plants that were acknowledged are not in a log.
   *
   * @throws if it holds anything but whole lines, each with a plant that was sent
   */
  lost(log: string | Buffer): number;
  /** Checks that a log holds all plants that were acknowledged, and only whole lines. */
  check(log: string | Buffer): void;
}

const CLIENTS = 32;

export function createLedger(): Ledger {
  const agent = new Agent({ keepAlive: true, maxSockets: CLIENTS });
  const sent = new Map<number, Plant>();
  const acknowledged = new Set<number>();
  const statuses = new Map<Status, number>();
  let last = 0;

  function lost(log: string | Buffer): number {
    const stored = plantsIn(typeof log === 'string' ? readFileSync(log) : log);
    for (const plant of stored.values())
      assert.deepEqual(plant, sent.get(plant.id), 'every line holds a plant that was sent');
    return [...acknowledged].filter((id) => !stored.has(id)).length;
  }

  return {
    get acknowledged() {
      return acknowledged.size;
    },
    heard: true,
    statuses,
    next(bytes = 40) {
      const id = ++last;
      const name = `fern ${id} \n"\u{1f33f}" ${'x'.repeat(bytes)}`;
      return id % 3 === 0 ? { id, name } : { id, name, tag: `tag ${id % 7}` };
    },
    async post(server, plant) {
      sent.set(plant.id, plant);
      const status = await post(agent, server.serves, plant);
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
      if (status === 200 && this.heard) acknowledged.add(plant.id);
      return status;
    },
    lost,
    check(log) {
      assert.equal(lost(log), 0, 'plants that were answered with 200 are not in the log');
    },
  };
}

/** The plants in a log, read by nothing that the program has. */
function plantsIn(log: Buffer): Map<number, Plant> {
  const text = log.toString('utf8');
  assert.ok(text === '' || text.endsWith('\n'), 'the log ends with a whole line');
  const plants = new Map<number, Plant>();
  for (const line of text.split('\n').slice(0, -1)) {
    const end = line.lastIndexOf(',"crc32":');
    const { crc32: checksum, ...plant } = JSON.parse(line) as Plant & { crc32: number };
    assert.equal(checksum, crc32(line.slice(0, end)), 'every line has its checksum');
    assert.ok(!plants.has(plant.id), 'every plant is there once');
    plants.set(plant.id, plant);
  }
  return plants;
}

function post(agent: Agent, port: number, plant: Plant): Promise<Status> {
  return new Promise((resolve) => {
    const headers = { Authorization: `Bearer ${TOKEN}`, 'Content-Type': 'application/json' };
    request({ port, agent, method: 'POST', path: '/plants', headers })
      .on('response', (response) => {
        response.resume().on('close', () => resolve(response.statusCode));
      })
      .on('error', () => resolve(undefined))
      .end(JSON.stringify(plant));
  });
}

export interface LoadOptions {
  readonly clients?: number;
  /** How many plants are sent in all. */
  readonly plants?: number;
  /** How long the name of every tenth plant is, in bytes. */
  readonly bytes?: number;
}

/** Clients that send plants, each one after the other, until the program answers no more. */
export interface Load {
  /** Resolves once so many plants are acknowledged, or the load has ended. */
  reached(acknowledged: number): Promise<void>;
  /** Resolves once a plant was not acknowledged, or the load has ended. */
  readonly refused: Promise<void>;
  readonly ended: Promise<void>;
}

export function startLoad(ledger: Ledger, server: Server, options: LoadOptions = {}): Load {
  const { clients = CLIENTS, plants = Infinity, bytes = 10_000 } = options;
  let left = plants;
  let acknowledged = 0;
  let target = Infinity;
  let onTarget = (): void => undefined;
  let onRefusal = (): void => undefined;
  const refused = new Promise<void>((resolve) => (onRefusal = resolve));

  async function client(): Promise<void> {
    while (left-- > 0) {
      const plant = ledger.next(left % 10 === 0 ? bytes : undefined);
      const status = await ledger.post(server, plant);
      if (status === undefined) return;
      if (status !== 200) onRefusal();
      else if (++acknowledged === target) onTarget();
    }
  }

  const ended = Promise.all(Array.from({ length: clients }, client)).then(() => undefined);
  return {
    reached: (count) =>
      Promise.race([
        ended,
        new Promise<void>((resolve) => ((target = count), (onTarget = resolve))),
      ]),
    refused: Promise.race([refused, ended]),
    ended,
  };
}
