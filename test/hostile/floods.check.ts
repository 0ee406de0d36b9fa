/*
 * Sends far more connections, requests and bytes than the program can hold. The program refuses the
 * excess and loses no acknowledged plant, and its memory stays bounded.
 */
import { strict as assert } from 'node:assert';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';

import t, { type Test } from 'tap';

import { MAX_HEADER_LINES } from '../../dist/http/limits.js';
import { CONNECTION_LIMITS } from '../../dist/program/server/http-server.js';
import { selfSigned } from '../helpers/certificate.js';
import {
  untilEventOrClose,
  message,
  openSocket,
  parseAnswers,
  type Answer,
} from '../helpers/client.js';
import { isLong } from '../helpers/effort.js';
import { createLedger, type Ledger, type Plant } from '../helpers/load.js';
import { missing } from '../helpers/needs.js';
import { PATIENT, settingsFor, start, stopCleanly } from '../helpers/program.js';
import { injecting } from '../helpers/strace.js';
import { FIXED_MIB, PER_BODY_BYTE, TLS_KIB, watchMemory } from './memory.js';

/** The default of `PLANT_STORE_MAX_BUFFERED`, in MiB. */
const MAX_BUFFERED_MIB = 64;

/** A few less than the default of `PLANT_STORE_MAX_CONNECTIONS`. */
const CONNECTIONS = 9_990;
/**
 * The number of connections in a flood of pipelines. With more, the program may take more memory
 * than is documented.
 */
const PIPELINES = isLong ? 60 : 20;
const PIPELINED = 2_000;
const BODIES = isLong ? 2_000 : 150;
const BODY_BYTES = 1_048_576;
/** The largest body size of which eight fit into the default of `PLANT_STORE_MAX_BUFFERED`. */
const LARGEST_BODY_BYTES = 8 * BODY_BYTES;
const HANG_MS = isLong ? 10_000 : 3_000;
/** Descriptors that a process needs in addition to its connections. */
const FILES = 500;

const maxFiles = Number(execFileSync('sh', ['-c', 'ulimit -Hn'], { encoding: 'utf8' }));
const tooFewFiles = maxFiles < CONNECTIONS + FILES && `ulimit -Hn is ${maxFiles}`;

t.setTimeout(1_800_000);

/** The largest head with the most lines. */
const HEAD =
  'POST /plants HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n' +
  `${'x'.repeat(34)}: ${'x'.repeat(42)}\r\n`.repeat(MAX_HEADER_LINES - 2) +
  '\r\n';
/**
 * Records the answer to a plant, and checks that the plant is stored, or refused because the
 * program is busy or the client was late.
 */
function record(ledger: Ledger, plant: Plant, answer: Answer | undefined): void {
  ledger.record(plant, answer?.status ?? 'no answer');
  if (!answer) return;
  if (answer.status === 200) assert.equal(answer.body, JSON.stringify({ ...plant, id: undefined }));
  else assert.ok([408, 503].includes(answer.status), `${answer.status} ${answer.body}`);
}

assert.ok(HEAD.length <= CONNECTION_LIMITS.maxHeaderSize);

/** The number of heads that a connection pipelines. */
const PIPELINED_HEADS = 10;
/** The size of the pieces of a head that trickles, in bytes. */
const TRICKLE = 2_000;

/** How each of thousands of connections sends the largest head, without a token. */
const HEADS: Readonly<Record<string, readonly [isSecure: boolean, begin: Begin]>> = {
  'over TLS, that are pipelined': [
    true,
    (socket) => {
      socket.write(HEAD.repeat(PIPELINED_HEADS));
      return untilEventOrClose(socket, 'data');
    },
  ],
  'whose bodies do not come': [
    false,
    (socket) => {
      socket.write(HEAD.replace('Length: 0', 'Length: 9'));
      return untilEventOrClose(socket, 'data');
    },
  ],
  'that trickle': [
    false,
    async (socket) => {
      // The last byte is missing, so that the head never ends.
      const head = HEAD.slice(0, -1);
      for (let sent = 0; sent < head.length; sent += TRICKLE) {
        socket.write(head.slice(sent, sent + TRICKLE));
        await nextTurn();
      }
    },
  ],
};

for (const [form, [isSecure, begin]] of Object.entries(HEADS)) {
  const count = isSecure && !isLong ? CONNECTIONS / 10 : CONNECTIONS;
  t.test(`a plant is stored beside ${count} heads ${form}`, { skip: tooFewFiles }, (t) =>
    flood(t, { isSecure, mib: isSecure ? (count * TLS_KIB) / 1024 : 0 }, async (trial) => {
      const sockets = await openConnections(trial, count, begin);
      while (hasUnread(trial.port)) await nextTurn();
      const ms = await timed(() => storeOne(trial));
      for (const socket of sockets) socket.destroy();
      t.comment(`a plant in ${ms} ms`);
    }),
  );
}

for (const [count, size] of [
  [BODIES, BODY_BYTES],
  [BODIES / 5, LARGEST_BODY_BYTES],
] as const)
  t.test(
    `of ${count} bodies of ${size} bytes at once, each is stored or refused in bounded memory`,
    (t) => {
      const env = { PLANT_STORE_MAX_BODY: String(size) };
      const mib = (PER_BODY_BYTE * (size - BODY_BYTES)) / 1_048_576;
      return flood(t, { mib, env, preload: PATIENT }, (trial) => sendAtOnce(trial, count, size));
    },
  );

t.test(
  'plants that are pipelined while a write hangs wait or are refused',
  { skip: missing('strace') },
  async (t) => {
    // The first write is for the plant before the flood.
    const hang = `write,pwrite64:delay_enter=${HANG_MS * 1_000}:when=2`;
    const under = (log: string): string[] =>
      injecting({ paths: [log], names: 'write,pwrite64' }, hang);
    await flood(t, { under, preload: PATIENT }, async (trial) => {
      const first = storeOne(trial);
      await Promise.all(Array.from({ length: PIPELINES }, () => pipeline(trial, PIPELINED)));
      await first;
    });
  },
);

/** What a client does with a connection that it has opened. */
type Begin = (socket: Socket) => unknown;

interface FloodOptions {
  readonly isSecure?: boolean;
  /** The memory that the program may take in addition, in MiB. */
  readonly mib?: number;
  /** The command that runs the program with a log at this path. */
  readonly under?: (log: string) => readonly string[];
  /** The source of a module that Node imports before the program. */
  readonly preload?: string;
  /** More settings. */
  readonly env?: Readonly<Record<string, string>>;
}

interface Trial {
  readonly port: number;
  readonly isSecure: boolean;
  readonly ledger: Ledger;
}

/** Floods a program, and checks its memory, its log and that it serves afterwards. */
async function flood(
  t: Test,
  { isSecure = false, mib = 0, under, preload, env: more = {} }: FloodOptions,
  during: (trial: Trial) => Promise<void>,
): Promise<void> {
  const folder = t.testdir({ ...selfSigned() });
  const log = join(folder, 'plants.jsonl');
  const [PLANT_STORE_TLS_KEY, PLANT_STORE_TLS_CERT] = [join(folder, 'key'), join(folder, 'cert')];
  const env = {
    ...settingsFor(log),
    ...more,
    ...(isSecure && { PLANT_STORE_TLS_KEY, PLANT_STORE_TLS_CERT }),
  };
  const program = await start(t, { env, under: under?.(log) ?? [], ...(preload && { preload }) });
  const trial = { port: program.port, isSecure, ledger: createLedger() };
  await storeOne(trial);
  const mostMemory = watchMemory(program.pid);
  await during(trial);
  const most = mostMemory();
  // The program answers this plant once it has cleaned up after the flood.
  await storeOne(trial);
  const ms = await timed(() => storeOne(trial));
  await stopCleanly(t, program);
  trial.ledger.expectNothingLost(log);
  t.comment(JSON.stringify([...trial.ledger.outcomes]));
  t.ok(ms < 5_000, `afterwards a plant is stored in ${ms} ms`);
  const bound = FIXED_MIB + MAX_BUFFERED_MIB + mib;
  t.ok(most < bound, `the memory stays below ${bound} MiB: at most ${most} MiB`);
}

const requestOf = (plant: Plant): Buffer => message({ body: JSON.stringify(plant) });

async function storeOne(trial: Trial): Promise<void> {
  const [answer] = await pipeline(trial, 1);
  assert.equal(answer?.status, 200);
}

/**
 * Sends plants over one connection, all at once. The program closes the connection if it holds too
 * many refused requests.
 */
async function pipeline({ port, isSecure, ledger }: Trial, count: number): Promise<Answer[]> {
  const plants = Array.from({ length: count }, () => ledger.next(0));
  const socket = await openSocket(port, isSecure);
  const received = answersOn(socket);
  socket.end(Buffer.concat(plants.map(requestOf)));
  const answers = await received;
  for (const [n, plant] of plants.entries()) record(ledger, plant, answers[n]);
  return answers;
}

/** Resolves to the answers on a connection once the program has closed or reset it. */
async function answersOn(socket: Socket): Promise<Answer[]> {
  const chunks: Buffer[] = [];
  socket.on('data', (chunk) => chunks.push(chunk));
  await untilEventOrClose(socket, 'close');
  return parseAnswers(Buffer.concat(chunks)).answers;
}

/**
 * Sends bodies of the maximum size without their ends, and then all ends at once. A client that is
 * answered early stops sending (RFC 9112, section 9.5).
 */
async function sendAtOnce(trial: Trial, count: number, size: number): Promise<void> {
  // Because of this character, V8 stores every character of the string in two bytes.
  const name = `\u0416${'x'.repeat(size - 40)}`;
  const sockets = await openConnections(trial, count);
  const requests = sockets.map((socket) => {
    const plant = { id: trial.ledger.next().id, name };
    const answers = answersOn(socket);
    const stop = (): void => socket.destroySoon();
    socket.once('data', stop);
    const bytes = requestOf(plant);
    const sent = new Promise((resolve) =>
      socket.once('close', resolve).write(bytes.subarray(0, -END.length), resolve),
    );
    return { socket, plant, answers, sent, stop };
  });
  for (const { sent } of requests) {
    await sent;
    // Shows the runner that the test goes on: all of this may take long on a busy machine.
    console.error('a body has been sent, or its connection was closed');
  }
  for (const { socket, stop } of requests) if (socket.writable) socket.off('data', stop).end(END);
  for (const { plant, answers } of requests) {
    record(trial.ledger, plant, (await answers)[0]);
    console.error('a body has been answered');
  }
}

const END = '"}';

const AT_A_TIME = 500;

async function openConnections(
  { port, isSecure }: Trial,
  count: number,
  begin: Begin = () => undefined,
): Promise<Socket[]> {
  async function open(): Promise<Socket> {
    const socket = await openSocket(port, isSecure);
    await begin(socket);
    return socket;
  }
  const sockets: Socket[] = [];
  while (sockets.length < count) {
    const length = Math.min(count - sockets.length, AT_A_TIME);
    sockets.push(...(await Promise.all(Array.from({ length }, open))));
    // Shows the runner that the test goes on: all of this may take long on a busy machine.
    console.error(`${sockets.length} connections`);
  }
  return sockets;
}

/** Whether bytes on a connection to this port wait until the program reads them. */
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

/** Resolves to the duration of some work, in ms. */
async function timed(work: () => Promise<void>): Promise<number> {
  const startedAt = performance.now();
  await work();
  return Math.round(performance.now() - startedAt);
}

t.test('a client that is silent in its TLS handshake does not delay a shutdown', async (t) => {
  const cwd = t.testdir({ ...selfSigned() });
  const env = {
    ...settingsFor(join(cwd, 'plants.jsonl')),
    PLANT_STORE_TLS_KEY: 'key',
    PLANT_STORE_TLS_CERT: 'cert',
  };
  const program = await start(t, { cwd, env });
  const silent = await openSocket(program.port);
  // The program accepts this connection after the silent one.
  await openSocket(program.port, true);
  t.strictSame(await program.stop('SIGTERM'), { code: 0, signal: null });
  silent.destroy();
});
