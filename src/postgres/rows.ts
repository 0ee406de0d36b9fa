import {
  isRequired,
  MEMBERS,
  membersInJson,
  plantOf,
  PlantSchema,
  type MemberType,
  type NewPlant,
  type Plant,
} from '../plant.js';

/** The columns of a row in the text format of PostgreSQL. */
export type Row = readonly (string | null)[];

/** Of each type of a member: the type of its column, and its value in the text format of PostgreSQL. */
const TYPES: Readonly<Record<MemberType, { type: string; parse: (text: string) => unknown }>> = {
  string: { type: 'text', parse: (text) => text },
};

/** A column of the table, in SQL. */
interface Column {
  readonly name: string;
  readonly type: string;
  readonly constraint: string;
}

const memberColumns = MEMBERS.map((name) => ({
  name,
  ...TYPES[PlantSchema.properties[name].type],
  constraint: isRequired(name) ? ' NOT NULL' : '',
}));

/**
 * The columns of the table. `exact` is null unless the type `text` cannot hold a string of the plant: then it is the
 * JSON of the members, whose strings have U+FFFD in place of NUL and lone surrogates in their own columns.
 */
const COLUMNS: readonly Column[] = [
  { name: 'id', type: 'bigint', constraint: ' PRIMARY KEY' },
  ...memberColumns,
  { name: 'exact', type: 'text', constraint: '' },
];

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
    const value: unknown = plant[member];
    row[member] = typeof value === 'string' ? value.replace(NOT_TEXT, '\ufffd') : value;
    if (row[member] !== value) row.exact = `{${membersInJson(plant)}}`;
  }
  return row;
}

/** The plant in a row that has all columns. */
export function plantOfRow([id, ...values]: Row): NewPlant {
  const exact = values[MEMBERS.length];
  const members = typeof exact === 'string' ? (JSON.parse(exact) as Plant) : membersOf(values);
  return plantOf(BigInt(id as string), members);
}

function membersOf(values: Row): Plant {
  const entries = memberColumns.map(({ name, parse }, n) => {
    const text = values[n];
    return [name, typeof text === 'string' ? parse(text) : undefined];
  });
  return Object.fromEntries(entries) as Plant;
}
