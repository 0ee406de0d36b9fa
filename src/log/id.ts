/**
 * An id in two's complement: first its low 32 bits, then its high ones. Creating a `bigint` for each of
 * millions of records would be slow.
 */
export type IdWords = Int32Array & { 0: number; 1: number };

export function createIdWords(): IdWords {
  return new Int32Array(2) as IdWords;
}

/** The id must be an int64. */
export function toWords(id: bigint, words = createIdWords()): IdWords {
  INT64.setBigInt64(0, id);
  words[0] = INT64.getInt32(4);
  words[1] = INT64.getInt32(0);
  return words;
}

const INT64 = new DataView(new ArrayBuffer(8));
