import t from 'tap';

/**
 * What wrk reports about a load: its number, with which all ids begin, and the numbers of plants
 * that were answered with 200 and that were sent.
 */
interface Load {
  readonly run: number;
  readonly answered: number;
  readonly sent: number;
}

const { checkIds } = (await import(
  String(new URL('../../test/bench/measure.js', import.meta.url))
)) as {
  readonly checkIds: (ids: readonly number[], loads: readonly Load[]) => void;
};

/** The ids of plants that a load has sent. */
const idsOf = (run: number, count: number): number[] =>
  Array.from({ length: count }, (_, n) => run * 1e9 + n);

t.test('a benchmark fails unless all plants that were answered with 200 are stored', async (t) => {
  const first = [1];
  const loads = [
    { run: 1001, answered: 3, sent: 4 },
    { run: 1002, answered: 2, sent: 2 },
  ];
  const second = idsOf(1002, 2);
  for (const stored of [3, 4])
    t.doesNotThrow(() => checkIds([...first, ...idsOf(1001, stored), ...second], loads));
  const wrong: Record<string, readonly number[]> = {
    'one is lost': [...first, ...idsOf(1001, 2), ...second],
    'one of the last load is lost': [...first, ...idsOf(1001, 3), ...idsOf(1002, 1)],
    'the plant of the checks is lost': [...idsOf(1001, 3), ...second],
    'one was not sent': [...first, ...idsOf(1001, 5), ...second],
    'one is stored twice': [...first, ...idsOf(1001, 3), ...second, ...second],
  };
  for (const [what, ids] of Object.entries(wrong))
    t.throws(() => checkIds(ids, loads), Error, what);
});
