import {
  areStoredMembers,
  MEMBERS,
  membersInJson,
  plantOf,
  storedMemberFaults,
  type Members,
  type NewPlant,
  type StoredPlant,
} from '../plant.js';
import { messageOf } from './errors.js';

/** A row of the result of a statement, with its values in the text format of PostgreSQL. */
export type Row = Readonly<Record<string, string | null>>;

/** NUL and lone surrogates: with the flag `u`, a pair of surrogates does not match. */
const NOT_TEXT = /[\0\ud800-\udfff]/gu;

/** The rows of plants in JSON. */
export function rowsOf(plants: readonly NewPlant[]): string {
  return JSON.stringify(plants.map(rowOf));
}

/**
 * The columns of a plant. PostgreSQL's `text` cannot hold NUL or a lone surrogate: a string with
 * such a character has U+FFFD in its place, and the column `exact` is the JSON of all members.
 */
function rowOf(plant: NewPlant): object {
  const row: Record<string, unknown> = { id: String(plant.id) };
  for (const member of MEMBERS) {
    const value = plant[member];
    row[member] = value?.replace(NOT_TEXT, '\ufffd');
    if (row[member] !== value) row.exact = `{${membersInJson(plant)}}`;
  }
  return row;
}

/**
 * The plant in a row of the table. An earlier version of plant-store may have stored the plant.
 *
 * @throws Error if the row is not a plant: other programs can write rows, too.
 */
export function plantOfRow(row: Row): StoredPlant {
  const { id, exact } = row;
  try {
    const value: unknown =
      typeof exact === 'string'
        ? JSON.parse(exact)
        : Object.fromEntries(MEMBERS.map((member) => [member, row[member] ?? undefined]));
    // `exact` may be any JSON, such as `null`, which has no members.
    const members = Object(value) as Members;
    if (!areStoredMembers(members)) throw new Error(storedMemberFaults(members).join('; '));
    return plantOf(BigInt(String(id)), members);
  } catch (cause) {
    throw new Error(`the row with the id ${id} is not a plant: ${messageOf(cause)}`, { cause });
  }
}
