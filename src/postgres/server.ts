#!/usr/bin/env node
import { databaseProgram } from '../program/database.js';

// With this variable, pg loads another client library.
delete process.env.NODE_PG_FORCE_NATIVE;

// Not a static import, so that the program can say what to install.
databaseProgram(async () => (await import('./index.js')).openPostgresStore);
