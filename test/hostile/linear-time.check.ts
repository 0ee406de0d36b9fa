/*
 * Every function that sees the bytes of a client takes time that is linear in their number.
 * Quadratic time would exceed the limits below for the longest adversarial inputs.
 */
import { strict as assert } from 'node:assert';

import t, { type Test } from 'tap';

import { createAuthenticator } from '../../dist/http/auth.js';
import { contentFailure } from '../../dist/http/content.js';
import { routeFailure } from '../../dist/http/handler.js';
import { DEFAULT_LIMITS } from '../../dist/http/limits.js';
import { protocolFailure } from '../../dist/http/protocol.js';
import type { HttpRequest } from '../../dist/http/request.js';
import { crc32 } from '../../dist/log/crc32.js';
import { linesIn } from '../../dist/log/lines.js';
import { encodeRecord } from '../../dist/log/encode.js';
import { isTornRecord } from '../../dist/log/record.js';
import { membersInJson } from '../../dist/plant.js';
import { checkNewPlant, parseNewPlant, PlantFault } from '../../dist/plant-json.js';
import { rowsOf } from '../../dist/postgres/rows.js';
import { TOKEN } from '../helpers/client.js';
import { MAX_BLOCK_MS } from './time.js';

/**
 * How often a slow call is tried again: other processes or garbage collection may have disturbed
 * it.
 */
const ATTEMPTS = 5;
/**
 * A function that calls `JSON.parse` may take at most this many times as long as V8's `JSON.parse`
 * alone takes for the same text.
 */
const MAX_OVER_V8 = 2;

/** The largest head that node:http accepts unless an application changes that, in bytes. */
const HEAD_BYTES = 16_384;
/** The time limit for such a head. With quadratic time, it would take a hundred. */
const MAX_HEAD_MS = 10;
/** The size of the largest body, in bytes. */
const BODY_BYTES = DEFAULT_LIMITS.maxBodyBytes;

t.setTimeout(1_800_000);

type Call = (input: string) => unknown;

/**
 * The processor time that a call takes, in ms. Other processes hardly influence it.
 */
function timeOf(call: Call, input: string): number {
  const before = process.cpuUsage();
  try {
    call(input);
  } catch (error) {
    // An input may be refused. A RangeError would mean that the stack has overflowed.
    assert.ok(error instanceof PlantFault || error instanceof SyntaxError, String(error));
  }
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1_000;
}

/**
 * The shortest time of several calls, in ms. No more calls are made after a time below the limit.
 */
function leastTimeOf(call: Call, input: string, limit = 0): number {
  let least = timeOf(call, input);
  for (let n = 1; n < ATTEMPTS && least > limit; n++) least = Math.min(least, timeOf(call, input));
  return least;
}

/**
 * Checks that a function takes at most `limit` milliseconds for each of these inputs. For an input
 * that takes `JSON.parse` itself longer, the function may take MAX_OVER_V8 times as long as that:
 * on a slow machine, a million brackets take hundreds of milliseconds.
 */
function expectLinear(
  t: Test,
  name: string,
  call: Call,
  limit: number,
  inputs: Iterable<string>,
): void {
  let most = 0;
  for (const input of inputs) {
    const ms = leastTimeOf(call, input, limit);
    most = Math.max(most, ms);
    if (ms > limit && ms > MAX_OVER_V8 * leastTimeOf(JSON.parse, input))
      t.fail(`${name}: ${JSON.stringify(input.slice(0, 30))} takes ${ms} ms`);
  }
  t.pass(`${name} takes at most ${most} ms`);
}

const RUNS = [
  ...Array.from(' \t"\\09,:;=.-+*%[]{/@?#a\u00e9'),
  ...['\\"', '%20', 'aA', 'a ', ' a', ';a=', '; a=b', 'v1.', ', ,'],
];

/** Runs of characters in the largest head, after each beginning and before each end. */
function* runs(beginnings: readonly string[], ends: readonly string[]): Iterable<string> {
  for (const run of RUNS)
    for (const beginning of beginnings)
      for (const end of ends) {
        const room = HEAD_BYTES - beginning.length - end.length;
        yield beginning + run.repeat(Math.floor(room / run.length)) + end;
      }
}

/** Checks the head of a request with these headers and this target, as the handler does. */
function judgeHead(headers: Readonly<Record<string, string>>, url = '/plants'): unknown {
  const all = { host: 'a', 'content-type': 'application/json', ...headers };
  const rawHeaders = Object.entries(all).flat();
  // The checks use no other members of a request.
  const line = { method: 'POST', url, httpVersion: '1.1' };
  const req = { ...line, headers: all, rawHeaders } as object as HttpRequest;
  for (const check of [routeFailure, protocolFailure, authenticate]) check(req);
  return contentFailure(req, DEFAULT_LIMITS);
}

const authenticate = createAuthenticator([TOKEN]);

/** Beginnings of adversarial values, by header. */
const BEGINNINGS: Readonly<Record<string, readonly string[]>> = {
  host: ['', 'a', '[', '[::', '[v1.', 'a:', '%'],
  expect: ['', '100-continue'],
  authorization: ['', 'Bearer', 'Bearer ', 'bearer a', 'Bearer a='],
  'content-type': [
    ...['', 'application/json', 'application/json;', 'application/json;a=b'],
    ...['application/json;charset=', 'application/json;charset=utf-8;a="'],
  ],
  'content-encoding': ['', 'identity'],
  'transfer-encoding': ['', 'chunked'],
  'content-length': ['', '1', '-', '0x', '1e'],
};
const ENDS = ['', 'x', ':', ']', '=', '"', ' ', '!', ';charset=utf-8'];

t.test('a head is checked in linear time', async (t) => {
  const targets = ['', '/', '/plants', 'http://', 'http://a:', 'https://a@', 'http:///plants'];
  const ends = ['', '/plants', '@', '?', 'x'];
  expectLinear(t, 'the target', (url) => judgeHead({}, url), MAX_HEAD_MS, runs(targets, ends));
  for (const [name, beginnings] of Object.entries(BEGINNINGS))
    expectLinear(
      t,
      name,
      (value) => judgeHead({ [name]: value }),
      MAX_HEAD_MS,
      runs(beginnings, ENDS),
    );
});

/** Members of an object, as functions of their number. */
const MEMBERS: readonly ((n: number) => string)[] = [
  () => '"\\u0069":0,',
  () => '"\\\\":"\\"",',
  () => '"a":[[[[]]]],',
  () => '"a" : "," ,',
  (n) => `"${n}":0,`,
  (n) => `"\\u0061${n}":0,`,
  // Array indexes whose hashes share their lower bits.
  (n) => `"${(n * 65_536) % 9_961_472}":0,`,
  (n) => `"${n * 1_048_576}":0,`,
  (n) => `"${'a'.repeat(n % 100)}":[],`,
];

/**
 * Bodies that take long: valid plants of every kind, texts that are not JSON, and JSON that is not
 * a plant.
 */
function* bodies(): Iterable<string> {
  const room = BODY_BYTES - 60;
  for (const piece of [...Array.from(' "\\09,:[{\0\u{1f33f}'), '\\"', '\\\\', '\\u0000']) {
    const run = piece.repeat(room / Buffer.byteLength(piece));
    yield `{"id":1,"name":"${run}"}`;
    yield `{"id":${run},"name":"n"}`;
    yield `{"id":1${run}`;
    yield `{"${run}":1,"id":1,"name":"n"}`;
    yield `{"id":1, "name": "n"${run}}`;
    yield run;
  }
  for (const member of MEMBERS) {
    let run = '';
    for (let n = 0; run.length < room; n++) run += member(n);
    yield `{${run}"id":1,"name":"n"}`;
    yield `{"id":1,"name":"n","more":{${run}"":0}}`;
    yield `{${run}"id":1,"id":1}`;
  }
  const [half, zeros] = [Math.floor(room / 2), '0'.repeat(room / 2)];
  for (const id of [`1${zeros}e-${half}`, `0.${zeros}7e${half + 1}`, `7.${zeros}`, `1e${zeros}9`])
    yield `{"id":${id},"name":"n"}`;
  for (const [open, close] of [
    ['[', ']'],
    ['{"":', '}'],
  ] as const) {
    const depth = Math.floor(room / (open.length + close.length));
    yield `{"id":1,"name":"n","more":${open.repeat(depth)}0${close.repeat(depth)}}`;
    yield open.repeat(depth);
  }
  const values = '1,'.repeat(room / 2);
  yield `{"id":[${values}1],"name":[${values}1],"tag":{}}`;
}

t.test('a body is checked in linear time', async (t) => {
  const parse: Call = (text) => parseNewPlant(Buffer.from(text));
  expectLinear(t, 'a body', parse, MAX_BLOCK_MS, bodies());
});

t.test('a plant is written and read in linear time', async (t) => {
  /** Names so long that two of them in JSON have the size of a body. */
  function* names(): Iterable<string> {
    for (const run of [...RUNS, '\0', '\n', '\u0416', '\ud83c', '\u{1f33f}'])
      yield run.repeat(BODY_BYTES / 2 / (Buffer.byteLength(JSON.stringify(run)) - 2));
  }
  const calls: Readonly<Record<string, Call>> = {
    'that a body parser has left': (name) => checkNewPlant({ id: 1, name, tag: name }),
    'to the log': (name) => encodeRecord({ id: 1n, name, tag: name }),
    'from the log': (name) => linesIn(Buffer.from(encodeRecord({ id: 1n, name }))),
    'from a line with a long id': (name) => linesIn(Buffer.from(`{"id":1${name},"name":""}\n`)),
    'from a damaged line': (name) => {
      const line = Buffer.from(`{"id":1,"name":"${name}\n`);
      return [linesIn(line), isTornRecord(line)];
    },
    'its checksum': (name) => {
      const { buffer, byteOffset, length } = Buffer.from(name);
      return crc32(new DataView(buffer, byteOffset, length), 0, length);
    },
    'to PostgreSQL': (name) => rowsOf([{ id: 1n, name, tag: name }]),
    'to the client': (name) => membersInJson({ name, tag: name }),
  };
  for (const [name, call] of Object.entries(calls))
    expectLinear(t, name, call, MAX_BLOCK_MS, names());
});
