#!/usr/bin/env node
import { databaseProgram } from '../program/database.js';

// With this variable, pg loads another client library.
delete process.env.NODE_PG_FORCE_NATIVE;

databaseProgram(async (options) => {
  // Not a static import, so that the program can say what is missing.
  const { openPostgresStore } = await import('./index.js').catch((cause: unknown) => {
    throw new Error('the package pg cannot be loaded; install it with: npm install pg', { cause });
  });
  return openPostgresStore(options);
});
