/* The runner loads this before each test file, after Node has begun to collect coverage. */

import { isMainThread } from 'node:worker_threads';

/*
 * While NODE_V8_COVERAGE is set, Node also reads the source maps of all modules, tap's among them,
 * and adds them to each report: 0.1 s and 3 MB a file. Of the processes that a test starts, only
 * the program needs the variable, and gets it from `launch`.
 */
delete process.env.NODE_V8_COVERAGE;

// A worker thread that a test starts loads this module, too.
if (isMainThread) {
  const { default: t } = await import('tap');
  const { failOnLeaks } = await import('./leaks.js');
  // Not by an option of Node, which would also read the source maps of tap: 0.15 s a file.
  process.setSourceMapsEnabled(true);
  failOnLeaks(t);
  // Tells the runner that a test begins: tap prints the title of a test only at its first
  // assertion.
  t.beforeEach(({ fullname }) => void process.send?.(fullname));
}
