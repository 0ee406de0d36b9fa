import t, { type Test } from 'tap';

import { Budget, memoryForBody, type Reservation } from '../../dist/http/budget.js';
import { Failure, failures } from '../../dist/http/failures.js';
import { DEFAULT_LIMITS } from '../../dist/http/limits.js';
import { parsedPlant } from '../../dist/http/parsed-body.js';
import type { HttpRequest } from '../../dist/http/request.js';
import { PlantFault } from '../../dist/plant-json.js';

interface Left {
  readonly rawBody?: unknown;
  readonly body?: unknown;
}

const LIMITS = { ...DEFAULT_LIMITS, maxBufferedBytes: 10_000 };

/** The plant in what a body parser has left, or the failure. */
function plantIn(left: Left, maxBodyBytes = 1_000, budget = new Budget(10_000)): unknown {
  const reservation = budget.reserve(0) as Reservation;
  try {
    // No other members of a request are used after its body has been read.
    return parsedPlant(left as object as HttpRequest, { ...LIMITS, maxBodyBytes }, reservation);
  } catch (error) {
    if (error instanceof Failure || error instanceof PlantFault) return error;
    throw error;
  }
}

const JSON_TEXT = '{"id":9007199254740993,"name":"f\u00e4rn"}';
const PLANT = { id: 2n ** 53n + 1n, name: 'f\u00e4rn' };
const BYTES = Buffer.from(JSON_TEXT);

/** The bytes of a plant, as body parsers store them. */
const FORMS: Readonly<Record<string, unknown>> = {
  'a string': JSON_TEXT,
  'a Buffer': BYTES,
  'part of a larger array': new Uint8Array(Buffer.from(`..${JSON_TEXT}`)).subarray(2),
};

/**
 * Checks that a plant is read, and that it counts as a body of this size in the limit and in the
 * budget.
 */
function expectRead(t: Test, left: Left, plant: object, size: number): void {
  const budget = new Budget(10_000);
  t.strictSame(plantIn(left, size, budget), plant);
  t.match(plantIn(left, size - 1), { error: 413 }, 'one byte more than the limit');
  t.equal(budget.reserved, memoryForBody(size));
  budget.reserve(10_000 - budget.reserved);
  t.equal(plantIn(left, size, budget), failures.overloaded);
}

t.test('a plant is read exactly from the bytes of a body parser in any form', async (t) => {
  for (const [form, bytes] of Object.entries(FORMS))
    await t.test(form, async (t) => {
      expectRead(t, { body: bytes }, PLANT, BYTES.length);
      expectRead(t, { rawBody: bytes, body: { id: 8, name: 'x' } }, PLANT, BYTES.length);
    });
});

t.test('a parsed plant counts with the bytes of its members in JSON', async (t) => {
  const body = { id: 7, name: 'f\u00e4rn\0', tag: 'x' };
  expectRead(t, { body }, { ...body, id: 7n }, '"name":"f__rn\\u0000","tag":"x"'.length);
});

t.test('a parsed body that is not a plant, or may have been changed, is refused', async (t) => {
  const rows: readonly [expected: object, left: Left][] = [
    [failures.consumed, {}],
    [{ kind: 'plant' }, { body: null }],
    [{ kind: 'json' }, { body: '' }],
    [{ kind: 'json' }, { rawBody: Buffer.from([0x22, 0xff, 0x22]) }],
    [{ kind: 'plant' }, { body: {} }],
    [{ kind: 'plant' }, { body: JSON.parse(JSON_TEXT) as unknown }],
    [failures.inexact, { body: '{"id":7,"name":"\ufffd"}' }],
    [failures.inexact, { rawBody: '{"id":7,"name":"\ud800"}' }],
  ];
  for (const [expected, left] of rows) t.match(plantIn(left), expected, JSON.stringify(left));
  t.strictSame(plantIn({ body: '{"id":7,"name":"\\ufffd"}' }), { id: 7n, name: '\ufffd' });
});
