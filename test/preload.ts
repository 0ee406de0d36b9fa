/*
 * Loaded before each file of tests, once Node has begun to collect its coverage. With NODE_V8_COVERAGE, it would also read
 * the source maps of all modules, tap's among them, and add them to each report: 0.1 s and 3 MB a file. Of the processes
 * that a test starts, `launch` gives it to the program alone.
 */
if (process.env.NODE_TEST_CONTEXT !== undefined) delete process.env.NODE_V8_COVERAGE;
