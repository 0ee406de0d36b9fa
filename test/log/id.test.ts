import t from 'tap';

import { createIdWords, toWords } from '../../dist/log/id.js';
import { MAX_ID, MIN_ID } from '../../dist/plant.js';

const WORDS: Record<string, [low: number, high: number]> = {
  '0': [0, 0],
  '-1': [-1, -1],
  '4294967296': [0, 1],
  '-4294967296': [0, -1],
  '2147483648': [-(2 ** 31), 0],
  [String(MAX_ID)]: [-1, 2 ** 31 - 1],
  [String(MIN_ID)]: [0, -(2 ** 31)],
};

t.test('an id has two words, in two’s complement', async (t) => {
  const words = createIdWords();
  for (const [id, expected] of Object.entries(WORDS)) {
    t.strictSame([...toWords(BigInt(id))], expected, id);
    t.equal(toWords(BigInt(id), words), words, 'they are written to the given ones');
  }
});
