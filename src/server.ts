#!/usr/bin/env node
import { isNodeSupported } from './program/node-release.js';
import { handleSignals } from './program/signals.js';

// Before anything else is loaded: without a listener, SIGHUP ends the process, and systemd takes that for a
// clean end.
const shutdown = handleSignals();

// Not a static import: an old Node would fail to load it, instead of reporting that it is too old.
if (isNodeSupported())
  void import('./program/log.js').then(({ logProgram }) => logProgram(shutdown));
