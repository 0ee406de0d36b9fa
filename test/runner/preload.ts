/* Loaded by `test/runner/runner.ts` before each file of tests, once Node has begun to collect its coverage. */

import { isMainThread } from 'node:worker_threads';

/*
 * With NODE_V8_COVERAGE, Node would also read the source maps of all modules, tap's among them, and
 * add them to each report: 0.1 s and 3 MB a file. Of the processes that a test starts, `launch`
 * gives it to the program alone.
 */
delete process.env.NODE_V8_COVERAGE;

// A thread that a test starts loads this as well.
if (isMainThread) {
  const { default: t } = await import('tap');
  const { failOnLeaks } = await import('./leaks.js');
  failOnLeaks(t);
  // Tells the runner that a test begins: tap prints its title only with its first assertion.
  t.beforeEach(({ fullname }) => void process.send?.(fullname));
}
