import { strict as assert } from 'node:assert';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { createReadStream, readdirSync, writeFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { Duplex } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { connect as connectSecurely } from 'node:tls';

import type { Case } from '../faults/case.js';
import { serve, stop, TOKEN, type Server } from '../faults/program.js';
import { injecting } from '../faults/strace.js';
import { selfSigned } from '../support.js';
import { opened, parseAnswers, rawRequest, type Answer } from './exchange.js';
import { memoryOf } from './memory.js';

/** What the program may hold for requests by default, in MiB: `PLANT_STORE_MAX_BUFFERED`. */
const MAX_BUFFERED_MIB = 64;
/**
 * Node itself, 10,000 connections, what is read of bodies that are refused, and what is not collected
 * yet. It does not grow with what the program may hold.
 */
export const FIXED_MIB = 384;
/** What a connection takes on top with TLS, in KiB, of memory that OpenSSL and the C library hold. */
export const TLS_KIB = 128;
const BOUND_MIB = MAX_BUFFERED_MIB + FIXED_MIB;

const IDLE = 10_000;
const wavesOf = (isShort: boolean): number => (isShort ? 1 : 3);
const PIPELINED = 20_000;
const bodiesOf = (isShort: boolean): number => (isShort ? 300 : 2_000);
const BODY_BYTES = 1_048_576;
const HANG_MS = 10_000;
/** Files that a process needs beside its connections. */
const FILES = 500;

export const floodCases = (isShort: boolean): Case[] => [
  {
    promise: `${IDLE} idle connections are held, one more is refused, a plant is stored beside them`,
    async check(folder) {
      const files = Number(execFileSync('sh', ['-c', 'ulimit -Hn'], { encoding: 'utf8' }));
      if (files < IDLE + FILES) return `SKIPPED: ulimit -Hn is ${files}`;
      return flood(folder, async (trial) => {
        const { server } = trial;
        const used = await openSome(server, IDLE / 2 - 1);
        for (const socket of used) socket.write('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n');
        await Promise.all(used.map((socket) => once(socket, 'data')));
        const sockets = [...used, ...(await openSome(server, IDLE / 2))];
        const ms = await timed(() => storeOne(trial));
        sockets.push(...(await openSome(server, 1)));
        const refused = await opened(server.serves);
        await once(refused.resume(), 'close');
        assert.ok(
          sockets.every(({ destroyed }) => !destroyed),
          'none of the others is closed',
        );
        for (const socket of sockets) socket.destroy();
        return `a plant in ${ms} ms`;
      });
    },
  },
  {
    promise: `${wavesOf(isShort)} times ${IDLE} TLS handshakes that are begun and left, and a plant is stored beside them`,
    async check(folder) {
      const files = Number(execFileSync('sh', ['-c', 'ulimit -Hn'], { encoding: 'utf8' }));
      if (files < IDLE + FILES) return `SKIPPED: ulimit -Hn is ${files}`;
      const { key, cert } = selfSigned();
      const [PLANT_STORE_TLS_KEY, PLANT_STORE_TLS_CERT] = [
        join(folder, 'key'),
        join(folder, 'cert'),
      ];
      writeFileSync(PLANT_STORE_TLS_KEY, key);
      writeFileSync(PLANT_STORE_TLS_CERT, cert);
      const hello = await clientHello();
      return flood(
        folder,
        async (trial) => {
          const times: number[] = [];
          for (let wave = 1; wave <= wavesOf(isShort); wave++) {
            const sockets = await openSome(trial.server, IDLE - 10, (socket) => {
              socket.write(hello);
              // It is closed if the wave takes longer than a handshake may.
              return new Promise((resolve) => socket.once('data', resolve).once('close', resolve));
            });
            times.push(await timed(() => storeOne(trial)));
            for (const socket of sockets) socket.destroy();
            while (readdirSync(`/proc/${trial.server.pid}/fd`).length > FILES) await nextTurn();
          }
          return `a plant in ${times.join(', ')} ms`;
        },
        {
          ca: cert,
          environment: { PLANT_STORE_TLS_KEY, PLANT_STORE_TLS_CERT },
          boundMib: BOUND_MIB + (IDLE * TLS_KIB) / 1024,
        },
      );
    },
  },
  {
    promise: `${PIPELINED} requests on one connection are answered in order`,
    check: (folder) =>
      flood(folder, async (trial) => {
        const plants = Array.from({ length: PIPELINED }, () => trial.next());
        const all = plants.map((plant) => Buffer.concat(requestOf(plant)));
        const answers = await send(trial.server, [Buffer.concat(all)]);
        assert.equal(answers.length, PIPELINED);
        for (const [n, plant] of plants.entries()) trial.note(plant, answers[n]);
        return statusesOf(answers);
      }),
  },
  ...['one byte', 'two bytes'].map((size, n) => ({
    promise: `of ${bodiesOf(isShort)} bodies of the full size at once, ${size} a letter, each is stored or refused`,
    check: (folder: string) =>
      flood(folder, async (trial) =>
        statusesOf(await sendAtOnce(trial, bodiesOf(isShort), LETTERS[n] ?? '')),
      ),
  })),
  {
    promise: `while the disk hangs for ${HANG_MS} ms under load, plants wait or are refused`,
    needs: ['strace'],
    check(folder) {
      const calls = { paths: [join(folder, LOG)], names: 'write,pwrite64' };
      // The first write is that of the plant before the flood.
      const hang = `write,pwrite64:delay_enter=${HANG_MS * 1_000}:when=2`;
      return flood(
        folder,
        async (trial) => {
          let answers: (Answer | undefined)[] = [];
          const ms = await timed(async () => {
            const first = storeOne(trial);
            answers = await sendAtOnce(trial, 400, LETTERS[1]);
            await first;
          });
          assert.ok(ms >= HANG_MS, 'the disk hangs');
          assert.ok(answers.some((answer) => answer?.status === 503));
          return statusesOf(answers);
        },
        { under: injecting(calls, hang), environment: { UV_THREADPOOL_SIZE: '1' } },
      );
    },
  },
];

/** With the second one in it, all letters of a string take two bytes in memory. */
const LETTERS = ['x', '\u0416'] as const;

const LOG = 'plants.jsonl';

interface Plant {
  readonly id: number;
  readonly name: string;
}

/** A program, and the certificate of one that speaks TLS. */
interface Target extends Server {
  readonly ca: string | undefined;
}

interface FloodOptions {
  readonly ca?: string;
  readonly environment?: NodeJS.ProcessEnv;
  /** The command that runs the program, with all its arguments but the program. */
  readonly under?: readonly string[];
  readonly boundMib?: number;
}

interface Trial {
  readonly server: Target;
  /** A plant with an id of its own. */
  next(name?: string): Plant;
  /** Checks that a plant was answered with 200, or refused for now, and notes it. */
  note(plant: Plant, answer: Answer | undefined): void;
}

/** Floods a program, and checks what must be so during every flood and after it. */
async function flood(
  folder: string,
  during: (trial: Trial) => Promise<string>,
  { ca, environment, under = [], boundMib = BOUND_MIB }: FloodOptions = {},
): Promise<string> {
  const log = join(folder, LOG);
  const stored = new Map<number, Plant>();
  const server = {
    ...(await serve({
      log,
      under,
      environment: { UV_THREADPOOL_SIZE: undefined, ...environment },
    })),
    ca,
  };
  let lastId = 0;
  const trial: Trial = {
    server,
    next: (name = 'fern') => ({ id: ++lastId, name }),
    note(plant, answer) {
      if (answer?.status === 503) {
        assert.match(answer.headers.get('retry-after') ?? '', /^\d+$/);
        assert.equal((JSON.parse(answer.body) as { error: number }).error, 503);
        return;
      }
      assert.equal(answer?.status, 200, 'it is answered, with 200 or 503');
      assert.deepEqual(JSON.parse(answer.body), { name: plant.name });
      stored.set(plant.id, plant);
    },
  };
  await storeOne(trial);
  const memory = memoryOf(server.pid);
  const before = Math.round(memory.now());
  const seen = await during(trial);
  const most = Math.round(memory.most());
  // What the flood has left is cleared away before this one is answered.
  await storeOne(trial);
  const ms = await timed(() => storeOne(trial));
  await stop(server);
  await checkLog(log, stored);
  const figures = `${seen}; ${before} MiB before, at most ${most} MiB, then a plant in ${ms} ms`;
  assert.ok(ms < 5_000, `a plant is stored as before: ${figures}`);
  assert.ok(most < boundMib, `memory stays below ${boundMib} MiB: ${figures}`);
  return figures;
}

async function checkLog(log: string, stored: ReadonlyMap<number, Plant>): Promise<void> {
  const left = new Map(stored);
  for await (const line of createInterface(createReadStream(log))) {
    const { id, name } = JSON.parse(line) as Plant;
    assert.equal(name, stored.get(id)?.name, 'what is in the log was answered with 200');
    left.delete(id);
  }
  assert.equal(left.size, 0, 'what was answered with 200 is in the log, once');
}

/** The head of a request and its body. */
function requestOf(plant: Plant): [head: Buffer, body: Buffer] {
  const body = Buffer.from(JSON.stringify(plant));
  return [headOf(body.length), body];
}

function headOf(bodyBytes: number): Buffer {
  return rawRequest([
    'POST /plants HTTP/1.1',
    'Host: localhost',
    `Authorization: Bearer ${TOKEN}`,
    'Content-Type: application/json',
    `Content-Length: ${bodyBytes}`,
  ]);
}

async function storeOne(trial: Trial): Promise<void> {
  const plant = trial.next();
  const [answer] = await send(trial.server, requestOf(plant));
  assert.equal(answer?.status, 200);
  trial.note(plant, answer);
}

/** Sends pieces over a connection of its own, and resolves to all that is answered. */
async function send({ serves, ca }: Target, pieces: readonly Buffer[]): Promise<Answer[]> {
  const socket = ca === undefined ? await opened(serves) : await openedSecurely(serves, ca);
  const answered = answersOn(socket);
  for (const piece of pieces) socket.write(piece);
  socket.end();
  return answered;
}

async function answersOn(socket: Socket): Promise<Answer[]> {
  const chunks: Buffer[] = [];
  socket.on('data', (chunk) => chunks.push(chunk));
  await new Promise((resolve) => socket.once('close', resolve));
  return parseAnswers(Buffer.concat(chunks)).answers;
}

/**
 * Sends bodies of the full size, all but the end of each, and then the ends at once. A client that is
 * answered before stops to send, as RFC 9112 has it in section 9.5.
 */
async function sendAtOnce(
  trial: Trial,
  count: number,
  letter: string,
): Promise<(Answer | undefined)[]> {
  const name = letter + 'x'.repeat(BODY_BYTES - 40);
  const bytes = Buffer.from(name);
  const sockets = await openSome(trial.server, count);
  const requests = sockets.map((socket) => {
    const plant = trial.next(name);
    const beginning = `{"id":${plant.id},"name":"`;
    const answers = answersOn(socket);
    const stop = (): void => socket.destroySoon();
    socket.once('data', stop);
    socket.write(headOf(beginning.length + bytes.length + END.length));
    socket.write(beginning);
    const sent = new Promise((resolve) => socket.once('close', resolve).write(bytes, resolve));
    return { socket, plant, answers, sent, stop };
  });
  await Promise.all(requests.map(({ sent }) => sent));
  for (const { socket, stop } of requests) if (socket.writable) socket.off('data', stop).end(END);
  return Promise.all(
    requests.map(async ({ plant, answers }) => {
      const [answer] = await answers;
      trial.note(plant, answer);
      return answer && { ...answer, body: '' };
    }),
  );
}

const END = '"}';

const AT_A_TIME = 500;

async function openSome(
  { serves }: Server,
  count: number,
  begin: (socket: Socket) => unknown = () => undefined,
): Promise<Socket[]> {
  async function open(): Promise<Socket> {
    const socket = await opened(serves);
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
  await once(socket, 'secureConnect');
  return socket;
}

/** What a TLS client says first. */
function clientHello(): Promise<Buffer> {
  return new Promise((resolve) => {
    const socket = new Duplex({
      read: () => undefined,
      write: (chunk: Buffer, _encoding, done) => {
        resolve(chunk);
        done();
      },
    });
    connectSecurely({ socket, servername: 'localhost' });
  });
}

/** How often each status came. */
function statusesOf(answers: readonly (Answer | undefined)[]): string {
  const counts = new Map<number, number>();
  for (const answer of answers)
    if (answer) counts.set(answer.status, (counts.get(answer.status) ?? 0) + 1);
  return [...counts].map(([status, count]) => `${count} times ${status}`).join(', ');
}

/** How long it takes, in ms. */
async function timed(work: () => Promise<void>): Promise<number> {
  const startedAt = performance.now();
  await work();
  return Math.round(performance.now() - startedAt);
}
