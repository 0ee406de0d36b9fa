import t from 'tap';

import { failures, type Failure } from '../../dist/http/failures.js';
import { codeSpans, rows } from '../readme.js';

/** Every failure by its name, with a sample of those that depend on the request. */
const samples = new Map(
  Object.entries(failures).map(([name, failure]) => {
    const make = failure as Failure | ((about: unknown) => Failure);
    return [name, typeof make === 'function' ? make(['a fault']) : make];
  }),
);

const TABLES = [
  'In the program and in applications',
  'Only in the program',
  'Only in applications',
];

t.test('the tables of failures list each of them with its numbers, and nothing else', async (t) => {
  const listed = TABLES.flatMap(rows).map(([status, error, name = '']) => {
    const [failure = ''] = codeSpans(name);
    const { status: wanted, error: wantedError } = samples.get(failure) ?? {};
    t.strictSame([Number(status), Number(error)], [wanted, wantedError], name);
    return failure;
  });
  t.strictSame([...new Set(listed)].toSorted(), [...samples.keys()].toSorted());
});
