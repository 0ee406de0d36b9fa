import { randomFillSync } from 'node:crypto';

/** Maps the id of each record, an int64, to its byte offset. */
export interface IdIndex {
  /** The number of ids. */
  readonly size: number;
  /** Returns the byte offset of the record with an id. */
  get(id: bigint): number | undefined;
  /**
   * Adds the id of a record. If the index has it already, changes nothing, and returns the byte
   * offset of the earlier record.
   */
  add(id: bigint, offset: number): number | undefined;
}

/*
 * Many small hash tables, each of which grows on its own: at ten million plants, one growth moves
 * 13,000 ids. A Map would stall while it grows, take 47 bytes a plant (71 with bigints as keys),
 * and end at 2^24 entries.
 */
const TABLE_BITS = 10;
/** The first bits of a hash select its table, and the last ones its slot. */
const TABLE_SHIFT = 32 - TABLE_BITS;
const FIRST_SLOTS = 16;
/**
 * A plant takes 16 bytes / 0.8 = 20 bytes just before its table doubles, and 40 bytes right after.
 */
const MAX_LOAD = 0.8;

/**
 * Ids that differ only in these bits have adjacent slots, which share cache lines: ten million
 * ascending ids are added in 0.8 s instead of 3.6, and random ones take as long as without it (Node
 * 20).
 */
const NEIGHBOUR_MASK = 0b1111111;
/**
 * The shortest step from one probed slot to the next. It leads past the slots of neighbours, which
 * are likely to be taken, too. All steps are odd, so that a probe reaches every slot.
 */
const MIN_STEP = NEIGHBOUR_MASK + 2;

/** An open-addressing hash table. The number of slots is a power of two. */
interface Table {
  readonly slots: number;
  used: number;
  /** A slot has 16 bytes. The words of its id are here, at 4n and 4n + 1. */
  readonly words: Int32Array;
  /**
   * The same buffer. At 2n + 1 is the byte offset of the record plus one, or 0 if the slot is free.
   */
  readonly offsets: Float64Array;
}

export function createIdIndex(): IdIndex {
  const hash = createHash();
  const tables = Array<Table | undefined>(2 ** TABLE_BITS).fill(undefined);
  let size = 0;

  function doubled({ slots, words, offsets }: Table): Table {
    const table = createTable(2 * slots);
    for (let slot = 0; slot < slots; slot++) {
      const stored = offsets[2 * slot + 1] as number;
      if (stored === 0) continue;
      const low = words[4 * slot] as number;
      const high = words[4 * slot + 1] as number;
      put(table, slotOf(table, hash(low, high), low, high), low, high, stored - 1);
    }
    return table;
  }

  return {
    get size() {
      return size;
    },
    get(id) {
      const [low, high] = wordsOf(id);
      const hashed = hash(low, high);
      const table = tables[hashed >>> TABLE_SHIFT];
      return table && offsetAt(table, slotOf(table, hashed, low, high));
    },
    add(id, offset) {
      const [low, high] = wordsOf(id);
      const hashed = hash(low, high);
      const table = (tables[hashed >>> TABLE_SHIFT] ??= createTable(FIRST_SLOTS));
      const slot = slotOf(table, hashed, low, high);
      const earlier = offsetAt(table, slot);
      if (earlier !== undefined) return earlier;
      put(table, slot, low, high, offset);
      size++;
      if (table.used > MAX_LOAD * table.slots) tables[hashed >>> TABLE_SHIFT] = doubled(table);
      return undefined;
    },
  };
}

const INT64 = new DataView(new ArrayBuffer(8));

/** The low and the high 32 bits of an id, in two's complement. */
function wordsOf(id: bigint): [low: number, high: number] {
  INT64.setBigInt64(0, id);
  return [INT64.getInt32(4), INT64.getInt32(0)];
}

function createTable(slots: number): Table {
  const buffer = new ArrayBuffer(16 * slots);
  return { slots, used: 0, words: new Int32Array(buffer), offsets: new Float64Array(buffer) };
}

/** The slot of an id, or the free slot for it. */
function slotOf(table: Table, hashed: number, low: number, high: number): number {
  const { slots, words, offsets } = table;
  let slot = hashed & (slots - 1);
  const step = ((hashed >>> 8) & ~NEIGHBOUR_MASK) | MIN_STEP;
  while (offsets[2 * slot + 1] !== 0 && (words[4 * slot] !== low || words[4 * slot + 1] !== high))
    slot = (slot + step) & (slots - 1);
  return slot;
}

function offsetAt({ offsets }: Table, slot: number): number | undefined {
  const stored = offsets[2 * slot + 1] as number;
  return stored === 0 ? undefined : stored - 1;
}

function put(table: Table, slot: number, low: number, high: number, offset: number): void {
  table.words[4 * slot] = low;
  table.words[4 * slot + 1] = high;
  table.offsets[2 * slot + 1] = offset + 1;
  table.used++;
}

/**
 * Simple tabulation hashing (Zobrist, 1970) with random tables, so that clients cannot choose ids
 * that collide.
 */
function createHash(): (low: number, high: number) => number {
  const tables = randomFillSync(new Uint32Array(8 * 256));
  const entry = (byte: number, word: number, shift: number): number =>
    tables[256 * byte + ((word >>> shift) & 0xff)] as number;
  return (low, high) =>
    ((low & NEIGHBOUR_MASK) ^
      entry(0, low & ~NEIGHBOUR_MASK, 0) ^
      entry(1, low, 8) ^
      entry(2, low, 16) ^
      entry(3, low, 24) ^
      entry(4, high, 0) ^
      entry(5, high, 8) ^
      entry(6, high, 16) ^
      entry(7, high, 24)) >>>
    0;
}
