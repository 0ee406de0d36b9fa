import t from 'tap';

import { failures, type Failure } from '../../dist/http/failures.js';
import { codeSpans, rows } from '../readme.js';

t.test('the table of answers lists the numbers and the headers of every failure', async (t) => {
  const shown = rows('Answers').map(([, status = '', error = '']) => {
    const [code = ''] = status.split(',');
    return [code, error, ...codeSpans(status).map((header) => header.split(':')[0])].join(' ');
  });
  const given = Object.values(failures).map((failure) => {
    const make = failure as Failure | ((about: unknown) => Failure);
    const { status, error, headers } = typeof make === 'function' ? make(['a fault']) : make;
    const names = Object.keys(headers).filter((name) => name !== 'Accept-Encoding');
    return [status, error, ...names].join(' ');
  });
  t.strictSame([...new Set(shown)].toSorted(), [...new Set(given)].toSorted());
});
