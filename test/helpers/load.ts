import { strict as assert } from 'node:assert';
import { readFileSync } from 'node:fs';
import { Agent as HttpAgent, request as httpRequest } from 'node:http';
import { Agent as TlsAgent, request as tlsRequest } from 'node:https';
import { crc32 } from 'node:zlib';

import { TOKEN } from './client.js';

export interface Plant {
  readonly id: number;
  readonly name: string;
  readonly tag?: string;
}

/** The status of an answer, or why there was none: the code of an error. */
export type Outcome = number | string;

/** The plants that were sent to a program, and the plants that it acknowledged. */
export interface Ledger {
  /** The number of plants that were answered with 200. */
  readonly acknowledged: number;
  /** Whether a 200 counts as an acknowledgement from now on. */
  acknowledges: boolean;
  /** The number of requests with each outcome. */
  readonly outcomes: ReadonlyMap<Outcome, number>;
  /** A plant with a new id and a name of about `bytes` bytes. */
  next(bytes?: number): Plant;
  /** Sends a plant and records the outcome. */
  post(port: number, plant: Plant, client?: LoadClient): Promise<Outcome>;
  /** Records that a plant was sent, and the outcome. */
  record(plant: Plant, outcome: Outcome): void;
  /**
   * The number of acknowledged plants that are missing from a log.
   *
   * @throws if the log contains anything but whole lines, each with a plant that was sent
   */
  lost(log: string | Buffer): number;
  /** Checks that a log contains all acknowledged plants and nothing but whole lines. */
  expectNothingLost(log: string | Buffer): void;
}

export function createLedger(): Ledger {
  const sent = new Map<number, Plant>();
  const acknowledged = new Set<number>();
  const outcomes = new Map<Outcome, number>();
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
    outcomes,
    next(bytes = 40) {
      const id = ++last;
      const name = `fern ${id} \n"\u{1f33f}" ${'x'.repeat(bytes)}`;
      return id % 3 === 0 ? { id, name } : { id, name, tag: `tag ${id % 7}` };
    },
    async post(port, plant, client = createClient()) {
      sent.set(plant.id, plant);
      const outcome = await send(client, port, plant);
      this.record(plant, outcome);
      return outcome;
    },
    record(plant, outcome) {
      sent.set(plant.id, plant);
      outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
      if (outcome === 200 && this.acknowledges) acknowledged.add(plant.id);
    },
    lost,
    expectNothingLost(log) {
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

/** How requests are sent: over connections that are kept open, or each over a new connection. */
export interface LoadClient {
  readonly agent: HttpAgent;
  readonly request: typeof httpRequest;
}

export function createClient({ isSecure = false, keepAlive = false } = {}): LoadClient {
  return isSecure
    ? { agent: new TlsAgent({ keepAlive, rejectUnauthorized: false }), request: tlsRequest }
    : { agent: new HttpAgent({ keepAlive }), request: httpRequest };
}

function send({ agent, request }: LoadClient, port: number, plant: Plant): Promise<Outcome> {
  const headers = { Authorization: `Bearer ${TOKEN}`, 'Content-Type': 'application/json' };
  const options = { host: '127.0.0.1', port, agent, method: 'POST', path: '/plants', headers };
  return new Promise((resolve) => {
    request(options, (res) => {
      res.on('error', () => undefined).resume();
      res.on('close', () => resolve(res.complete ? Number(res.statusCode) : 'incomplete'));
    })
      .on('error', (error: NodeJS.ErrnoException) => resolve(String(error.code)))
      .end(JSON.stringify(plant));
  });
}

export interface LoadOptions {
  /** The number of plants to send. */
  readonly plants?: number;
  /** The length of the name of every tenth plant, in bytes. */
  readonly bytes?: number;
  /** Default: 32 clients that keep their connections open. */
  readonly clients?: readonly LoadClient[];
}

/**
 * Clients that each send one plant after another until connections are refused or the load is
 * stopped.
 */
export interface Load {
  /** Resolves once this many more plants are acknowledged, or the load has ended. */
  untilAcknowledged(more: number): Promise<void>;
  /** Resolves once a plant is not acknowledged, or the load has ended. */
  readonly refused: Promise<void>;
  readonly ended: Promise<void>;
  /** Resolves once the last requests are answered. */
  stop(): Promise<void>;
}

export function startLoad(ledger: Ledger, port: number, options: LoadOptions = {}): Load {
  const { plants = Infinity, bytes = 10_000 } = options;
  const { clients = Array.from({ length: 32 }, () => createClient({ keepAlive: true })) } = options;
  let left = plants;
  let [acknowledged, target] = [0, Infinity];
  let onTarget = (): void => undefined;
  let onRefusal = (): void => undefined;
  const refused = new Promise<void>((resolve) => (onRefusal = resolve));

  async function sendPlants(client: LoadClient): Promise<void> {
    while (left-- > 0) {
      const plant = ledger.next(left % 10 === 0 ? bytes : undefined);
      const outcome = await ledger.post(port, plant, client);
      if (outcome !== 200) onRefusal();
      else if (++acknowledged === target) onTarget();
      if (outcome === 'ECONNREFUSED') break;
    }
    client.agent.destroy();
  }

  const ended = Promise.all(clients.map(sendPlants)).then(() => undefined);
  return {
    untilAcknowledged(more) {
      target = acknowledged + more;
      return Promise.race([ended, new Promise<void>((resolve) => (onTarget = resolve))]);
    },
    refused: Promise.race([refused, ended]),
    ended,
    stop() {
      left = 0;
      return ended;
    },
  };
}
