/*
 * The plant in a body, or the failure that a body gets, computed independently of the program's
 * code. Of the program, only the schema is used.
 */
import { PlantSchema, type NewPlant } from '../../dist/index.js';

const SCHEMAS = Object.entries(PlantSchema.properties);
const NAMES = ['id', ...Object.keys(PlantSchema.properties)];
const REQUIRED = new Set<string>(PlantSchema.required);

/** For types of JSON Schema, whether a value has the type. */
const TYPES: Readonly<Record<string, (value: unknown) => boolean>> = {
  string: (value) => typeof value === 'string',
};

/** The plant in a body, or the `error` of the 400 that answers it. */
type Verdict = NewPlant | typeof NOT_JSON | typeof NOT_A_PLANT;

const NOT_JSON = 400;
const NOT_A_PLANT = 422;
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

export function judgeBody(body: Uint8Array): Verdict {
  let text: string;
  let value: unknown;
  try {
    text = utf8.decode(body);
    value = JSON.parse(text);
  } catch {
    return NOT_JSON;
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return NOT_A_PLANT;
  const members = membersOf(text);
  const names = members.map(([name]) => name);
  if (NAMES.some((name) => names.indexOf(name) !== names.lastIndexOf(name))) return NOT_JSON;
  const own = new Map<string, unknown>(Object.entries(value));
  const id = int64(members.find(([name]) => name === 'id')?.[1] ?? '');
  if (id === undefined) return NOT_A_PLANT;
  const plant: Record<string, unknown> = { id };
  for (const [name, { type }] of SCHEMAS)
    if (TYPES[type]?.(own.get(name))) plant[name] = own.get(name);
    else if (own.has(name) || REQUIRED.has(name)) return NOT_A_PLANT;
  return plant as NewPlant;
}

const TOKEN = /[\s,:]*([[\]{}]|"[^"\\]*(?:\\[^][^"\\]*)*"|[^\s,:[\]{}"]+)/y;

/** The members of a JSON object, each with the first token of its value. */
function membersOf(json: string): [name: string, token: string][] {
  const members: [string, string][] = [];
  let depth = 0;
  let name: string | undefined;
  TOKEN.lastIndex = 0;
  for (let match = TOKEN.exec(json); match; match = TOKEN.exec(json)) {
    const token = match[1] ?? '';
    const isValue = name !== undefined;
    if (depth === 1 && isValue) members.push([String(name), token]);
    if (depth === 1) name = isValue || token === '}' ? undefined : (JSON.parse(token) as string);
    if (token === '{' || token === '[') depth++;
    if (token === '}' || token === ']') depth--;
  }
  return members;
}

/** The exact value of a JSON number, as a fraction of two integers, if it is an int64. */
function int64(source: string): bigint | undefined {
  const match = /^(-?)(\d+)(?:\.(\d*))?(?:[eE](.*))?$/.exec(source);
  if (!match) return undefined;
  const [, sign, whole = '', fraction = '', exponent = '0'] = match;
  const numerator = BigInt(whole + fraction);
  if (numerator === 0n) return 0n;
  const power = BigInt(exponent.replace('+', '')) - BigInt(fraction.length);
  // With such an exponent, a number with this many digits is out of range or not an integer.
  if (power > 19n || -power > BigInt(source.length)) return undefined;
  const divisor = power < 0n ? 10n ** -power : 1n;
  if (numerator % divisor !== 0n) return undefined;
  const size = power < 0n ? numerator / divisor : numerator * 10n ** power;
  const value = sign === '-' ? -size : size;
  return BigInt.asIntN(64, value) === value ? value : undefined;
}
