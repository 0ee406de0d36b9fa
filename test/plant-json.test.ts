import { deepEqual, equal } from 'node:assert/strict';

import fc from 'fast-check';
import t, { type Test } from 'tap';

import { copyPlant, MEMBERS, type NewPlant } from '../dist/plant.js';
import { checkNewPlant, parseNewPlant, PlantFault } from '../dist/plant-json.js';
import { anyString } from './helpers/any-plant.js';
import { byLength, seed } from './helpers/effort.js';
import { document } from './helpers/json-documents.js';
import { judgeBody } from './helpers/oracle.js';
import { FERN, inJson, OPTIONAL, PLAIN, PLANTS_OF_EACH_SHAPE } from './helpers/plants.js';

const ID_RULE = 'id: must be an integer between -9223372036854775808 and 9223372036854775807';
const STRING_RULE = `${ID_RULE}, not a string`;
const NAME_RULE = 'name: must be a string';
const TAG_RULE = 'tag: must be a string';
const NULL_RULE = `${TAG_RULE}, or be left out`;

interface Fault {
  readonly kind: string;
  readonly message: string;
}

const notJson = (why: string): Fault => ({
  kind: 'json',
  message: `body: must be one JSON text in UTF-8; it ${why}`,
});
const BYTE_ORDER_MARK = { kind: 'json', message: 'body: must not begin with a byte order mark' };
const invalid = (...rules: readonly string[]) => ({ kind: 'plant', message: rules.join('; ') });
const NOT_OBJECT = invalid('body: must be a JSON object with the members id and name');

/** The plant that a function returns, or the fault that it throws. */
function outcomeOf(parse: () => NewPlant): NewPlant | Fault {
  try {
    return parse();
  } catch (error) {
    if (!(error instanceof PlantFault)) throw error;
    return { kind: error.kind, message: error.message };
  }
}

const read = (text: string | Buffer) => outcomeOf(() => parseNewPlant(Buffer.from(text)));

/** Checks that texts are all read as the same plant, or all have the same fault. */
function expectRead(t: Test, expected: object, texts: readonly string[]): void {
  t.strictSame(
    texts.map((text) => [text, read(text)]),
    texts.map((text) => [text, expected]),
  );
}

/** The id that a notation is read as; `undefined` if it is refused. */
function idOf(spelling: string): bigint | undefined {
  const outcome = read(`{"id":${spelling},"name":"fern"}`);
  if ('id' in outcome) return outcome.id;
  deepEqual(outcome, invalid(spelling.startsWith('"') ? STRING_RULE : ID_RULE));
  return undefined;
}

const MIN = -(2n ** 63n);
const MAX = 2n ** 63n - 1n;

/** The kinds of faults, by the `error` of the answer. */
const KINDS = { 400: 'json', 422: 'plant' };

t.test('generated JSON documents are read as an independent oracle reads them', async (t) => {
  const isJudged = fc.property(document, (bytes) => {
    const verdict = judgeBody(bytes);
    const outcome = read(bytes);
    if (typeof verdict !== 'number') deepEqual(outcome, verdict);
    else equal('kind' in outcome && outcome.kind, KINDS[verdict]);
  });
  t.doesNotThrow(() => fc.assert(isJudged, { numRuns: byLength(1_000, 3_000, 40_000), seed }));
});

/** Ids with unusual notations of them. The notations that are refused come last. */
const NOTATIONS: readonly (readonly [id: bigint | undefined, spellings: readonly string[]])[] = [
  [7n, ['7.0', '\t\r\n 7 \n']],
  [100n, ['1E+2']],
  [1n, ['10e-1', '0.1e1']],
  [0n, ['-0', '0e999999999999999999999', '0.000e-999999999999999999999']],
  [2n ** 53n + 1n, ['9007199254740993']],
  [MAX, ['9223372036854775807000e-3']],
  [MIN, ['-9223372036854775808.000']],
  [undefined, ['1e999999999999999999999', '-1e-999999999999999999999', '9223372036854775807.1']],
  [undefined, ['7.0000000000000000000001', '"7"', 'null', 'true', '[7]', '{"id":7}', '""']],
  [undefined, ['"\\"7"']],
];

t.test('unusual notations of an id are read exactly', async (t) => {
  t.strictSame(
    NOTATIONS.map(([, spellings]) => spellings.map(idOf)),
    NOTATIONS.map(([id, spellings]) => spellings.map(() => id)),
  );
});

t.test('a number of 200,000 digits is read exactly', async (t) => {
  // If the cost were not linear, the longest of these would not come to an end.
  for (const length of [1_000, 200_000]) {
    const nines = '9'.repeat(length);
    const zeros = '0'.repeat(length);
    const space = ' '.repeat(length);
    const sevens = [`7.${zeros}`, `7${zeros}e-${length}`, `0.${zeros}7e${length + 1}`];
    t.strictSame([...sevens, `${space}7${space}`].map(idOf), [7n, 7n, 7n, 7n]);
    t.equal(idOf(`0e${nines}`), 0n);
    for (const spelling of [nines, `7e${nines}`, `7${zeros}e-${length + 1}`])
      t.equal(idOf(spelling), undefined);
  }
});

t.test('the id is found wherever it is in the object', async (t) => {
  const id = 2n ** 53n + 1n;
  expectRead(t, { id, name: 'fern' }, [
    `{"id":${id},"name":"fern"}`,
    `{"name":"fern","id":${id}}`,
    `{"name":"fern","a":{"id":1},"id":${id},"b":[{"id":2}]}`,
    `{"name":"fern","a":"\\"id\\":1","id":${id},"b":"{\\\\","c":"}"}`,
    `{"name":"fern","a":["}",{"]":"\\\\\\""},[]],"id":${id},"b":{}}`,
    `{"name":"fern","\\"id":1,"id ":2,"ID":3,"id":${id}}`,
    `{"name":"fern","\\u0069\\u0064":${id}}`,
    `{"n\\u0061me":"fern","i\\u0064":${id}}`,
    ` \n{ "name" : "fern" ,\t"id" :\r\n${id}\n}\n `,
  ]);
});

t.test('a repeated member of a plant is refused, even if its name is escaped', async (t) => {
  const expectRepeated = (member: string, texts: readonly string[]): void =>
    expectRead(t, { kind: 'json', message: `${member}: must not be given twice` }, texts);
  expectRepeated('id', [
    '{"id":1,"id":1,"name":"fern"}',
    '{"id":1,"name":"fern","\\u0069d":2}',
    '{"\\u0069\\u0064":1,"id":2,"name":"fern"}',
    '{"id":null,"id":1,"name":"fern"}',
    '{"id":1,"name":"fern","a":{"b":[1,2]},"id":1}',
  ]);
  for (const member of MEMBERS) {
    const code = member.charCodeAt(0).toString(16).padStart(4, '0');
    const escaped = `\\u${code}${member.slice(1)}`;
    expectRepeated(member, [
      `{"id":1,"${member}":"a","${member}":"b"}`,
      `{"${member}":"a","id":1,"${escaped}":"b"}`,
    ]);
  }
});

t.test('a body as most clients write it is not scanned, whichever members it has', async (t) => {
  for (const plant of PLANTS_OF_EACH_SHAPE)
    for (const space of ['', ' ']) {
      const text = inJson(plant).replace(/[:,](?=")/g, `$&${space}`);
      const restore = t.capture(String.prototype, 'charCodeAt', () => {
        throw new Error(`scanned: ${text}`);
      });
      t.strictSame(read(text), plant);
      restore();
    }
});

t.test('members that a plant does not have are allowed, even twice, and not stored', async (t) => {
  const plant = { id: 1n, name: 'fern' };
  for (const name of ['__proto__', 'constructor', 'hasOwnProperty', 'crc32', '', 'Id', 'id2']) {
    const outcome = read(`{${JSON.stringify(name)}:{"id":2,"tag":"x"},"id":1,"name":"fern"}`);
    t.strictSame(outcome, plant, name);
    t.equal(Object.getPrototypeOf(outcome), Object.prototype, `${name}: a plain object`);
  }
  expectRead(t, plant, [
    '{"id":1,"name":"fern","a":1,"a":{"id":2,"id":3,"name":4}}',
    '{"a":[{"tag":1},{"tag":2,"tag":3}],"id":1,"name":"fern"}',
    '{"a":"{\\"id\\":1,\\"id\\":2}","id":1,"name":"fern"}',
  ]);
  // Members are not inherited.
  expectRead(t, invalid(ID_RULE, NAME_RULE), ['{"__proto__":{"id":1,"name":"fern"}}']);
});

/** The JSON of a string, with every UTF-16 code unit escaped. */
function escaped(text: string): string {
  const units = text.split('').map((unit) => unit.charCodeAt(0).toString(16).padStart(4, '0'));
  return `"${units.map((unit) => `\\u${unit}`).join('')}"`;
}

/**
 * Whether a string is read unchanged as name and tag, in its shortest and in its longest spelling.
 */
function isReadUnchanged(text: string): boolean {
  return [JSON.stringify(text), escaped(text)].every((json) => {
    const outcome = read(`{"id":1,"name":${json},"tag":${json}}`);
    return 'id' in outcome && outcome.name === text && outcome.tag === text;
  });
}

t.test('name and tag can be any strings, and are read unchanged', async (t) => {
  // A missing tag is not an empty tag.
  expectRead(t, { id: 1n, name: '' }, ['{"id":1,"name":""}']);
  t.ok(isReadUnchanged('","id":2,"name":"'));
  t.ok(isReadUnchanged('farn\u{1f33f}'.repeat(12_800)));
  t.doesNotThrow(() => fc.assert(fc.property(anyString, isReadUnchanged)));
});

t.test('the message lists every fault of a NewPlant', async (t) => {
  // The values of each member, and the faults that they have. An empty value is a missing member.
  const choices: Record<string, Record<string, string[]>> = {
    id: { '7': [], '': [ID_RULE], null: [ID_RULE], '"7"': [STRING_RULE], '1.5': [ID_RULE] },
  };
  for (const member of MEMBERS) {
    const fault = `${member}: must be a string`;
    const isOptional = OPTIONAL.includes(member);
    choices[member] = {
      [JSON.stringify(PLAIN)]: [],
      '7': [fault],
      '': isOptional ? [] : [fault],
      null: [isOptional ? `${fault}, or be left out` : fault],
    };
  }
  let bodies = [{ members: [] as string[], faults: [] as string[] }];
  for (const [member, values] of Object.entries(choices))
    bodies = bodies.flatMap(({ members, faults }) =>
      Object.entries(values).map(([json, more]) => ({
        // The members are in another order than their faults.
        members: json === '' ? members : [`"${member}":${json}`, ...members],
        faults: [...faults, ...more],
      })),
    );
  for (const { members, faults } of bodies) {
    const text = `{${members.join()}}`;
    if (faults.length > 0) expectRead(t, invalid(...faults), [text]);
    else t.notOk('kind' in read(text), text);
  }
});

t.test('a body that is not JSON in UTF-8 is refused, and none of its text is shown', async (t) => {
  const plant = '{"id":1,"name":"fern"}';
  // Some releases of Node report the position, and others do not.
  const faulty = /^body: must be one JSON text in UTF-8; it is not valid( at position \d+)?$/;
  for (const body of [' \n', `${plant}//`, '{"id":1,"name":"fern",}', '{id:1,name:"fern"}'])
    t.match(read(body), { kind: 'json' }, body);
  for (const body of ['{"id":01,"name":"fern"}', '{"id":1,"name":"\n"}', 'id=1&name=fern'])
    t.match(read(body), { kind: 'json', message: faulty }, body);
  t.match(read(Buffer.from(plant, 'utf16le')), { kind: 'json', message: faulty });
  // Latin-1, a character cut short, an overlong NUL, a pair of surrogates (CESU-8), more than
  // U+10FFFF, and no UTF-8.
  for (const hex of ['e9', 'f09f8c', 'c080', 'eda0bcedbcbf', 'f4908080', 'ff']) {
    const name = Buffer.from(hex, 'hex').toString('latin1');
    const body = Buffer.from(`{"id":1,"name":"${name}"}`, 'latin1');
    t.strictSame(read(body), notJson('is not UTF-8'), hex);
  }
  expectRead(t, notJson('ends too early'), ['']);
  expectRead(t, notJson('is not valid at position 7'), ['{"id":1']);
  expectRead(t, notJson('is not valid at position 8'), ['{"id":1,}']);
  expectRead(t, notJson('is not valid at position 23'), [`${plant}\n${plant}`]);
  expectRead(t, notJson('is not valid'), ['secret', 'secret JSON at position 5']);
  expectRead(t, BYTE_ORDER_MARK, [`\ufeff${plant}`, '\ufeff{}', '\ufeffx', '\ufeff']);
  // Within a string, a byte order mark is a character.
  expectRead(t, { id: 1n, name: '\ufeff' }, ['{"id":1,"name":"\ufeff"}']);
});

t.test('JSON with any depth of nesting is read or refused', async (t) => {
  const depth = 100_000;
  const arrays = '['.repeat(depth) + ']'.repeat(depth);
  const objects = '{"a":'.repeat(depth) + '1' + '}'.repeat(depth);
  for (const endless of ['['.repeat(depth), '{"id":'.repeat(depth)])
    t.match(read(endless), { kind: 'json' });
  t.strictSame(read(arrays), NOT_OBJECT);
  for (const deep of [arrays, objects]) {
    t.strictSame(read(`{"a":${deep},"id":1,"name":"fern"}`), { id: 1n, name: 'fern' });
    const faulty = `{"id":${deep},"name":${deep},"tag":${deep}}`;
    t.strictSame(read(faulty), invalid(ID_RULE, NAME_RULE, TAG_RULE));
  }
});

t.test('a value that a body parser has parsed has to meet the same rules', async (t) => {
  const rounded =
    'id: may have been rounded by the body parser; mount the handler before the body parser';
  const replaced = 'must not contain U+FFFD, which stands for invalid UTF-8 here';
  const rows: readonly (readonly [value: unknown, expected: object])[] = [
    ...[7, 0, -0, 2 ** 53 - 1, 1 - 2 ** 53].map(
      (id) =>
        [
          { id, name: '', more: 1 },
          { id: BigInt(id), name: '' },
        ] as const,
    ),
    [{ id: '7', name: 'fern' }, invalid(STRING_RULE)],
    [{ id: 7, name: 7, tag: 7 }, invalid(NAME_RULE, TAG_RULE)],
    [{}, invalid(ID_RULE, NAME_RULE)],
    ...[[], null, 7].map((value) => [value, NOT_OBJECT] as const),
    // A value that the parser may have changed is refused; the message names the remedy if there is
    // one.
    ...[2 ** 53, -(2 ** 53), 2 ** 63, -(2 ** 63), Number('9007199254740993')].map(
      (id) => [{ id, name: 'fern' }, invalid(rounded)] as const,
    ),
    ...[2 ** 64, 1e300, Infinity, NaN, 1.5].map(
      (id) => [{ id, name: 'fern' }, invalid(ID_RULE)] as const,
    ),
    [{ id: 7, name: 'f\ufffdrn' }, invalid(`name: ${replaced}`)],
    [{ id: 7, name: 'fern', tag: '\ufffd' }, invalid(`tag: ${replaced}`)],
    // All faults are named together.
    [{ id: 2 ** 53, name: 5 }, invalid(NAME_RULE, rounded)],
    [{ id: 2 ** 53, name: '\ufffd', tag: null }, invalid(NULL_RULE, `name: ${replaced}`, rounded)],
  ];
  t.strictSame(
    rows.map(([value]) => [value, outcomeOf(() => checkNewPlant(value))]),
    rows,
  );
});

t.test('copyPlant refuses what is not a plant, and says what to change', async (t) => {
  const refused = (plant: object) => () => copyPlant(plant as NewPlant);
  t.throws(refused({ ...FERN, id: 7 }), new TypeError('id: must be a bigint, such as 5n'));
  t.throws(refused({ ...FERN, id: 2n ** 63n }), new RangeError(ID_RULE));
  t.throws(refused({ id: 7n }), new TypeError(NAME_RULE));
  for (const member of OPTIONAL) {
    const fault = `${member}: must be a string`;
    t.throws(refused({ ...FERN, [member]: 7 }), new TypeError(fault));
    t.throws(refused({ ...FERN, [member]: null }), new TypeError(`${fault}, or be left out`));
  }
});
