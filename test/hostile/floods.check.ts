/*
 * Far more connections, requests and bytes than the program can hold: it refuses the excess, loses
 * no acknowledged plant, and its memory stays bounded.
 */
import { strict as assert } from 'node:assert';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { createReadStream, readFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { connect as connectSecurely } from 'node:tls';

import t, { type Test } from 'tap';

import { MAX_HEADER_LINES } from '../../dist/http/memory.js';
import { CONNECTION_LIMITS } from '../../dist/program/listener.js';
import { selfSigned } from '../certificate.js';
import { message } from '../client.js';
import { injecting } from '../faults/strace.js';
import { missing, settingsFor, stopCleanly } from '../faults/support.js';
import { isLong } from '../length.js';
import { PATIENT, start, type Program } from '../system/program.js';
import { opened, parseAnswers, type Answer } from './exchange.js';
import { FIXED_MIB, memoryOf, TLS_KIB } from './memory.js';

/** The default of `PLANT_STORE_MAX_BUFFERED`, in MiB. */
const MAX_BUFFERED_MIB = 64;
const BOUND_MIB = MAX_BUFFERED_MIB + FIXED_MIB;

const IDLE = 10_000;
const PIPELINED = 20_000;
const PIPELINES = isLong ? 400 : 100;
const BODIES = isLong ? 2_000 : 300;
const BODY_BYTES = 1_048_576;
const HANG_MS = isLong ? 10_000 : 3_000;
/** Descriptors that a process needs in addition to its connections. */
const FILES = 500;

const maxFiles = Number(execFileSync('sh', ['-c', 'ulimit -Hn'], { encoding: 'utf8' }));
const tooFewFiles = maxFiles < IDLE + FILES && `ulimit -Hn is ${maxFiles}`;

t.setTimeout(1_800_000);

/** A preload with which node:http does not look for connections whose time is up. */
const UNCHECKED_CONNECTIONS = `import http from 'node:http';
import { syncBuiltinESMExports } from 'node:module';
const { createServer } = http;
http.createServer = (options) => createServer({ ...options, connectionsCheckingInterval: 2 ** 31 - 1 });
syncBuiltinESMExports();`;

t.test(
  `${IDLE} idle connections stay open, one more is closed, and a plant is stored beside them`,
  { skip: tooFewFiles },
  (t) =>
    // Unused connections are closed after 10 s, which is too short to open so many on a busy machine.
    flood(t, { preload: UNCHECKED_CONNECTIONS }, async (trial) => {
      const { program } = trial;
      const used = await openSome(program, IDLE / 2 - 1);
      for (const socket of used) socket.write('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n');
      await Promise.all(used.map((socket) => once(socket, 'data')));
      const sockets = [...used, ...(await openSome(program, IDLE / 2))];
      const ms = await timed(() => storeOne(trial));
      sockets.push(...(await openSome(program, 1)));
      const refused = await opened(program.port);
      await once(refused.resume(), 'close');
      t.ok(
        sockets.every(({ destroyed }) => !destroyed),
        'none of the others is closed',
      );
      for (const socket of sockets) socket.destroy();
      return `a plant in ${ms} ms`;
    }),
);

/** The largest head with the most lines. */
const HEAD =
  'POST /plants HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n' +
  `${'x'.repeat(34)}: ${'x'.repeat(42)}\r\n`.repeat(MAX_HEADER_LINES - 2) +
  '\r\n';
assert.ok(HEAD.length <= CONNECTION_LIMITS.maxHeaderSize);

/** The number of heads that a connection pipelines. */
const PIPELINED_HEADS = 10;
/** The size of the pieces of a head that trickles, in bytes. */
const TRICKLE = 400;

/** How each of thousands of connections sends the largest head, without a token. */
const HEADS: Readonly<Record<string, (socket: Socket) => unknown>> = {
  'that are pipelined': (socket) => {
    socket.write(HEAD.repeat(PIPELINED_HEADS));
    return dataOrClose(socket);
  },
  'whose bodies do not come': (socket) => {
    socket.write(HEAD.replace('Length: 0', 'Length: 9'));
    return dataOrClose(socket);
  },
  'that trickle': async (socket) => {
    for (let sent = 0; sent < HEAD.length - TRICKLE; sent += TRICKLE) {
      socket.write(HEAD.slice(sent, sent + TRICKLE));
      await nextTurn();
    }
  },
};

for (const [form, begin] of Object.entries(HEADS))
  for (const tls of [undefined, selfSigned()]) {
    const count = tls && !isLong ? IDLE / 10 : IDLE - 10;
    t.test(
      `${count} heads ${form}${tls ? ', over TLS' : ''}, and a plant is stored beside them`,
      { skip: tooFewFiles },
      (t) => {
        const boundMib = BOUND_MIB + (tls ? (count * TLS_KIB) / 1024 : 0);
        return flood(t, { tls, boundMib }, async (trial) => {
          const sockets = await openSome(trial.program, count, begin, trial.ca);
          while (hasUnread(trial.program.port)) await nextTurn();
          const ms = await timed(() => storeOne(trial));
          for (const socket of sockets) socket.destroy();
          return `a plant in ${ms} ms`;
        });
      },
    );
  }

t.test(`${PIPELINED} pipelined requests on one connection are answered in order`, (t) =>
  flood(t, {}, async (trial) => {
    const answers = await pipeline(trial, PIPELINED);
    t.equal(answers.length, PIPELINED);
    return statusesOf(answers);
  }),
);

t.test(`of ${BODIES} bodies at once, of the maximum size, each is stored or refused`, (t) =>
  flood(t, { preload: PATIENT }, async (trial) => statusesOf(await sendAtOnce(trial, BODIES))),
);

t.test(
  'plants with the smallest heads are pipelined behind a write that hangs, and wait or are refused',
  { skip: missing('strace') },
  async (t) => {
    // The first write is that of the plant before the flood.
    const hang = `write,pwrite64:delay_enter=${HANG_MS * 1_000}:when=2`;
    const under = (log: string): string[] =>
      injecting({ paths: [log], names: 'write,pwrite64' }, hang);
    await flood(t, { under, preload: PATIENT }, async (trial) => {
      const first = storeOne(trial);
      const answers = await Promise.all(
        Array.from({ length: PIPELINES }, () => pipeline(trial, PIPELINED / 10)),
      );
      await first;
      return statusesOf(answers.flat());
    });
  },
);

interface Plant {
  readonly id: number;
  readonly name: string;
}

interface FloodOptions {
  /** What makes the program serve HTTPS. */
  readonly tls?: Readonly<Record<'key' | 'cert', string>> | undefined;
  /** The command that runs the program with a log at this path. */
  readonly under?: (log: string) => readonly string[];
  /** The source of a module that Node imports before the program. */
  readonly preload?: string;
  readonly boundMib?: number;
}

interface Trial {
  readonly program: Program;
  /** The certificate of a program that serves HTTPS. */
  readonly ca: string | undefined;
  /** A plant with a new id. */
  next(name?: string): Plant;
  /**
   * Checks that a plant was stored or refused: with 503, or with 408 if its client was late. Without an answer, it
   * may or may not be stored.
   */
  record(plant: Plant, answer: Answer | undefined): void;
}

/** Floods a program, and checks its memory, its log and that it serves afterwards. */
async function flood(
  t: Test,
  { tls, under, preload, boundMib = BOUND_MIB }: FloodOptions,
  during: (trial: Trial) => Promise<string>,
): Promise<void> {
  const folder = t.testdir({ ...tls });
  const log = join(folder, 'plants.jsonl');
  const env = {
    ...settingsFor(log),
    ...(tls && {
      PLANT_STORE_TLS_KEY: join(folder, 'key'),
      PLANT_STORE_TLS_CERT: join(folder, 'cert'),
    }),
  };
  const stored = new Map<number, Plant>();
  const unanswered = new Map<number, Plant>();
  const program = await start(t, { env, under: under?.(log) ?? [], ...(preload && { preload }) });
  let lastId = 0;
  const trial: Trial = {
    program,
    ca: tls?.cert,
    next: (name = 'fern') => ({ id: ++lastId, name }),
    record(plant, answer) {
      if (!answer) return void unanswered.set(plant.id, plant);
      const { status, headers, body } = answer;
      if (status === 503) assert.match(headers.get('retry-after') ?? '', /^\d+$/);
      if (status !== 200) {
        assert.ok(status === 503 || status === 408, `the answer is 200, 408 or 503: ${status}`);
        assert.match(body, new RegExp(`^{"error":${status},`));
        return;
      }
      assert.deepEqual(JSON.parse(body), { name: plant.name });
      stored.set(plant.id, plant);
    },
  };
  await storeOne(trial);
  const memory = memoryOf(program.pid);
  const before = Math.round(memory.now());
  t.comment(await during(trial));
  const most = Math.round(memory.most());
  // The program answers this one after it has cleaned up after the flood.
  await storeOne(trial);
  const ms = await timed(() => storeOne(trial));
  await stopCleanly(t, program);
  await checkLog(log, stored, unanswered);
  t.comment(`${before} MiB before`);
  t.ok(ms < 5_000, `afterwards a plant is stored in ${ms} ms`);
  t.ok(most < boundMib, `the memory stays below ${boundMib} MiB: at most ${most} MiB`);
}

async function checkLog(
  log: string,
  stored: ReadonlyMap<number, Plant>,
  unanswered: ReadonlyMap<number, Plant>,
): Promise<void> {
  const left = new Map(stored);
  for await (const line of createInterface(createReadStream(log))) {
    const { id, name } = JSON.parse(line) as Plant;
    const sent = stored.get(id) ?? unanswered.get(id);
    assert.equal(name, sent?.name, 'every plant in the log was answered with 200, or not at all');
    left.delete(id);
  }
  assert.equal(left.size, 0, 'every plant that was answered with 200 is in the log, once');
}

function requestOf(plant: Plant): Buffer {
  return message({ body: JSON.stringify(plant) });
}

async function storeOne(trial: Trial): Promise<void> {
  const plant = trial.next();
  const [answer] = await send(trial, requestOf(plant));
  assert.equal(answer?.status, 200);
  trial.record(plant, answer);
}

/** Sends plants over one connection, all at once. The program closes it if too many refused requests are held. */
async function pipeline(trial: Trial, count: number): Promise<Answer[]> {
  const plants = Array.from({ length: count }, () => trial.next(''));
  const answers = await send(trial, Buffer.concat(plants.map(requestOf)));
  for (const [n, plant] of plants.entries()) trial.record(plant, answers[n]);
  return answers;
}

/** Sends bytes over a connection of their own, and resolves to all answers. */
async function send({ program, ca }: Trial, bytes: Buffer): Promise<Answer[]> {
  const { port } = program;
  const socket = ca === undefined ? await opened(port) : await openedSecurely(port, ca);
  const answered = answersOn(socket);
  socket.end(bytes);
  return answered;
}

async function answersOn(socket: Socket): Promise<Answer[]> {
  const chunks: Buffer[] = [];
  socket.on('data', (chunk) => chunks.push(chunk));
  await new Promise((resolve) => socket.once('close', resolve));
  return parseAnswers(Buffer.concat(chunks)).answers;
}

/**
 * Sends bodies of the maximum size without their ends, and then all ends at once. A client that is
 * answered early stops sending (RFC 9112, section 9.5).
 */
async function sendAtOnce(trial: Trial, count: number): Promise<(Answer | undefined)[]> {
  // With this character, every one of the string takes two bytes in memory.
  const name = `\u0416${'x'.repeat(BODY_BYTES - 40)}`;
  const sockets = await openSome(trial.program, count);
  const requests = sockets.map((socket) => {
    const plant = trial.next(name);
    const answers = answersOn(socket);
    const stop = (): void => socket.destroySoon();
    socket.once('data', stop);
    const bytes = requestOf(plant);
    const sent = new Promise((resolve) =>
      socket.once('close', resolve).write(bytes.subarray(0, -END.length), resolve),
    );
    return { socket, plant, answers, sent, stop };
  });
  await Promise.all(requests.map(({ sent }) => sent));
  for (const { socket, stop } of requests) if (socket.writable) socket.off('data', stop).end(END);
  return Promise.all(
    requests.map(async ({ plant, answers }) => {
      const [answer] = await answers;
      trial.record(plant, answer);
      return answer;
    }),
  );
}

const END = '"}';

const AT_A_TIME = 500;

async function openSome(
  { port }: Program,
  count: number,
  begin: (socket: Socket) => unknown = () => undefined,
  ca?: string,
): Promise<Socket[]> {
  async function open(): Promise<Socket> {
    const socket = ca === undefined ? await opened(port) : await openedSecurely(port, ca);
    await begin(socket);
    return socket;
  }
  const sockets: Socket[] = [];
  while (sockets.length < count) {
    const length = Math.min(count - sockets.length, AT_A_TIME);
    sockets.push(...(await Promise.all(Array.from({ length }, open))));
  }
  return sockets;
}

async function openedSecurely(port: number, ca: string): Promise<Socket> {
  const socket = connectSecurely({ port, host: 'localhost', ca, ALPNProtocols: ['http/1.1'] });
  socket.on('error', () => undefined);
  await eventOrClose(socket, 'secureConnect');
  return socket;
}

/**
 * Resolves once something arrives, or the program has closed the connection: because that took longer than
 * a handshake or a response may, or because too many refused requests were held.
 */
const dataOrClose = (socket: Socket): Promise<void> => eventOrClose(socket, 'data');

function eventOrClose(socket: Socket, event: string): Promise<void> {
  return new Promise((resolve) => {
    if (socket.destroyed) resolve();
    for (const each of [event, 'close']) socket.once(each, () => resolve());
  });
}

/** Whether bytes wait on a connection of a program to be read. */
function hasUnread(port: number): boolean {
  const local = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  const rows = readFileSync('/proc/net/tcp', 'latin1').split('\n');
  return rows.some((row) => {
    const [, address = '', , state, queues = ''] = row.trim().split(/\s+/);
    return address.endsWith(local) && state === ESTABLISHED && !queues.endsWith(':00000000');
  });
}

/** A state of `/proc/net/tcp`. */
const ESTABLISHED = '01';

/** The number of answers with each status, in words. */
function statusesOf(answers: readonly (Answer | undefined)[]): string {
  const counts = new Map<number, number>();
  for (const answer of answers)
    if (answer) counts.set(answer.status, (counts.get(answer.status) ?? 0) + 1);
  return [...counts].map(([status, count]) => `${count} times ${status}`).join(', ');
}

/** The duration of some work, in ms. */
async function timed(work: () => Promise<void>): Promise<number> {
  const startedAt = performance.now();
  await work();
  return Math.round(performance.now() - startedAt);
}
