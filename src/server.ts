#!/usr/bin/env node
import { EXIT, failWith } from './program/exit.js';
import { handleSignals } from './program/signals.js';

// As `engines` in package.json: since 20.19 and 22.12, an application in CommonJS can `require` the package. Node 21 to
// 22.1 lack `crc32` of `node:zlib`, too.
const { node } = process.versions;
const [major = 0, minor = 0] = node.split('.').map(Number);
if (major > 22 || (major === 22 && minor >= 12) || (major === 20 && minor >= 19)) {
  // Before anything else is loaded: without a listener, SIGHUP ends the process, and systemd takes that for a
  // clean end.
  const shutdown = handleSignals();
  // Not a static import: an old Node would fail to load it, instead of reporting that it is too old.
  void import('./program/main.js').then(({ main }) => main(shutdown));
} else
  process.exitCode = failWith(EXIT.usage, `needs Node ^20.19 || >=22.12; this is Node ${node}`);
