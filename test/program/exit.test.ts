import t from 'tap';

import { EXIT, fail } from '../../dist/program/exit.js';

t.test('a failure is reported one sentence a line, and returns the exit code', async (t) => {
  const written = t.capture(console, 'error', () => undefined);
  t.equal(fail(EXIT.usage, 'the first fault', 'the second fault'), 2);
  t.equal(fail(EXIT.failed, 'a reason'), 1);
  t.strictSame(
    written().map(({ args }) => args as unknown),
    [
      ['plant-store: the first fault'],
      ['plant-store: the second fault'],
      ['plant-store: a reason'],
    ],
  );
});
