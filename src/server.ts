#!/usr/bin/env node
import { EXIT, failWith } from './program/exit.js';
import { handleSignals } from './program/signals.js';

// The same range as `engines` in package.json. An application in CommonJS can `require` the package
// since Node 20.19 and 22.12. The function `crc32` of `node:zlib` is missing in Node 21 to 22.1.
const { node } = process.versions;
const [major = 0, minor = 0] = node.split('.').map(Number);
if (major > 22 || (major === 22 && minor >= 12) || (major === 20 && minor >= 19)) {
  // Before anything else is loaded: without a listener, SIGHUP ends the process, and systemd takes
  // that for a clean end.
  const shutdown = handleSignals();
  // Not a static import: an old Node would fail to load it, instead of reporting that it is too
  // old.
  void import('./program/main.js').then(({ main }) => main(shutdown));
} else
  process.exitCode = failWith(EXIT.usage, `needs Node ^20.19 || >=22.12; this is Node ${node}`);
