#!/usr/bin/env node
import { isNodeSupported } from './program/node-release.js';

// With this variable, pg loads another client library.
delete process.env.NODE_PG_FORCE_NATIVE;

// Not a static import, which an old Node would fail to load before it could say so.
if (isNodeSupported())
  void import('./program/database.js').then(({ databaseProgram }) => databaseProgram());
