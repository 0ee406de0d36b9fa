#!/usr/bin/env node
import { isNodeSupported } from './program/node-release.js';
import { handleSignals } from './program/signals.js';

// Before anything else is loaded: without a listener, SIGHUP ends the process.
const shutdown = handleSignals();

// With this variable, pg would load another client library.
delete process.env.NODE_PG_FORCE_NATIVE;

// Not a static import: an old Node would fail to load it, instead of reporting that it is too old.
if (isNodeSupported())
  void import('./program/database.js').then(({ databaseProgram }) => databaseProgram(shutdown));
