import {
  isRequired,
  MEMBERS,
  membersInJson,
  plantOf,
  type NewPlant,
  type Plant,
} from '../plant.js';

/** The columns of a row in the text format of PostgreSQL. */
export type Row = readonly (string | null)[];

/**
 * The columns of the table. `exact` is null unless the type `text` cannot hold a string of the plant: then it is the
 * JSON of the members, and their own columns have U+FFFD in place of NUL and lone surrogates.
 */
const COLUMNS = [
  { name: 'id', type: 'bigint', constraint: ' PRIMARY KEY' },
  ...MEMBERS.map((name) => ({
    name,
    type: 'text',
    constraint: isRequired(name) ? ' NOT NULL' : '',
  })),
  { name: 'exact', type: 'text', constraint: '' },
];

type Column = (typeof COLUMNS)[number];

/** SQL for each column, in their order. */
export function forColumns(sql: (column: Column) => string, separator = ', '): string {
  return COLUMNS.map(sql).join(separator);
}

const NOT_TEXT = /[\0\ud800-\udfff]/gu;

/** The rows of plants in JSON. */
export function rowsOf(plants: readonly NewPlant[]): string {
  return JSON.stringify(plants.map(rowOf));
}

function rowOf(plant: NewPlant): object {
  const row: Record<string, unknown> = { id: String(plant.id) };
  for (const member of MEMBERS) {
    const value = plant[member];
    row[member] = value?.replace(NOT_TEXT, '\ufffd');
    if (row[member] !== value) row.exact = `{${membersInJson(plant)}}`;
  }
  return row;
}

/** SQL for the members of a plant in JSON. */
export const MEMBERS_IN_JSON = `coalesce(exact, json_strip_nulls(json_build_object(
    ${MEMBERS.map((name) => `'${name}', ${name}`).join(', ')}))::text)`;

/** The plant in a row of its id and {@link MEMBERS_IN_JSON}. */
export function plantOfRow([id, members]: Row): NewPlant {
  return plantOf(BigInt(id as string), JSON.parse(members as string) as Plant);
}
