import t from 'tap';

import { codeOf, messageOf, reasonOf } from '../dist/system-error.js';
import { systemError } from './log/support.js';

t.test('reasonOf describes a system error in words, with its code', async (t) => {
  t.equal(reasonOf(systemError('ENOSPC', 'write')), 'no space left on device (ENOSPC)');
  t.equal(reasonOf(systemError('EACCES', 'open')), 'permission denied (EACCES)');
  t.equal(codeOf(systemError('ENOSPC', 'write')), 'ENOSPC');
});

t.test('an error without a message is named by its code', async (t) => {
  t.equal(messageOf(new Error('text')), 'text');
  t.equal(
    messageOf(Object.assign(new AggregateError([]), { code: 'ECONNREFUSED' })),
    'ECONNREFUSED',
  );
});

t.test('reasonOf returns the message of any other error, codeOf its code', async (t) => {
  t.equal(reasonOf(new RangeError('out of range')), 'out of range');
  for (const value of [new Error(''), undefined, null, 'text']) t.equal(codeOf(value), undefined);
});
