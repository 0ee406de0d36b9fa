import { strict as assert } from 'node:assert';
import { readFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { crc32 } from 'node:zlib';

import { TOKEN } from '../client.js';
import type { Program } from '../system/program.js';

export interface Plant {
  readonly id: number;
  readonly name: string;
  readonly tag?: string;
}

/** The status of an answer; `undefined` if there was none. */
export type Status = number | undefined;

/** The plants that were sent to a program, and those that it acknowledged. */
export interface Ledger {
  /** The number of plants that were answered with 200. */
  readonly acknowledged: number;
  /** Whether a 200 counts as an acknowledgement from now on. */
  acknowledges: boolean;
  /** The number of answers with each status. */
  readonly statuses: ReadonlyMap<Status, number>;
  /** A plant with a new id and a name of about `bytes` bytes. */
  next(bytes?: number): Plant;
  /** Sends a plant and records its answer. */
  post(program: Program, plant: Plant): Promise<Status>;
  /** Records that a plant was sent, and its answer. */
  record(plant: Plant, status: Status): void;
  /**
   * The number of acknowledged plants that are missing from a log.
   *
   * @throws if the log contains anything but whole lines, each with a plant that was sent
   */
  lost(log: string | Buffer): number;
  /** Checks that a log contains all acknowledged plants, and only whole lines. */
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
      assert.deepEqual(plant, sent.get(plant.id), 'every line contains a plant that was sent');
    return [...acknowledged].filter((id) => !stored.has(id)).length;
  }

  return {
    get acknowledged() {
      return acknowledged.size;
    },
    acknowledges: true,
    statuses,
    next(bytes = 40) {
      const id = ++last;
      const name = `fern ${id} \n"\u{1f33f}" ${'x'.repeat(bytes)}`;
      return id % 3 === 0 ? { id, name } : { id, name, tag: `tag ${id % 7}` };
    },
    async post({ port }, plant) {
      sent.set(plant.id, plant);
      const status = await post(agent, port, plant);
      this.record(plant, status);
      return status;
    },
    record(plant, status) {
      sent.set(plant.id, plant);
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
      if (status === 200 && this.acknowledges) acknowledged.add(plant.id);
    },
    lost,
    check(log) {
      assert.equal(lost(log), 0, 'no acknowledged plant is missing from the log');
    },
  };
}

/** The plants in a log, read without the program's own code. */
function plantsIn(log: Buffer): Map<number, Plant> {
  const text = log.toString('utf8');
  assert.ok(text === '' || text.endsWith('\n'), 'the log ends with a whole line');
  const plants = new Map<number, Plant>();
  for (const line of text.split('\n').slice(0, -1)) {
    const end = line.lastIndexOf(',"crc32":');
    const { crc32: checksum, ...plant } = JSON.parse(line) as Plant & { crc32: number };
    assert.equal(checksum, crc32(line.slice(0, end)), 'every line has the right checksum');
    assert.ok(!plants.has(plant.id), 'no id is repeated');
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
  /** The number of plants to send. */
  readonly plants?: number;
  /** The length of the name of every tenth plant, in bytes. */
  readonly bytes?: number;
}

/** Clients that each send one plant after another until the program closes their connections. */
export interface Load {
  /** Resolves once this number of plants is acknowledged, or the load has ended. */
  reached(acknowledged: number): Promise<void>;
  /** Resolves once a plant is not acknowledged, or the load has ended. */
  readonly refused: Promise<void>;
  readonly ended: Promise<void>;
}

export function startLoad(ledger: Ledger, program: Program, options: LoadOptions = {}): Load {
  const { plants = Infinity, bytes = 10_000 } = options;
  let left = plants;
  let acknowledged = 0;
  let target = Infinity;
  let onTarget = (): void => undefined;
  let onRefusal = (): void => undefined;
  const refused = new Promise<void>((resolve) => (onRefusal = resolve));

  async function client(): Promise<void> {
    while (left-- > 0) {
      const plant = ledger.next(left % 10 === 0 ? bytes : undefined);
      const status = await ledger.post(program, plant);
      if (status === undefined) return;
      if (status !== 200) onRefusal();
      else if (++acknowledged === target) onTarget();
    }
  }

  const ended = Promise.all(Array.from({ length: CLIENTS }, client)).then(() => undefined);
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
