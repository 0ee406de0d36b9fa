import { defineConfig } from 'eslint/config';

import base from '../.config/eslint.config.js';

/** Keeps files from importing the modules of some folders, and the modules called `names`. */
const wall = (files, folders, { ignores = [], names = ['node:process'] } = {}) => ({
  files,
  ignores,
  rules: {
    'no-restricted-imports': [
      'error',
      { paths: names, patterns: [{ regex: `^(?:\\.{1,2}/)+(?:${folders.join('|')})/` }] },
    ],
  },
});

export default defineConfig(
  base,
  // The wall clock may jump.
  { files: ['**/*.ts'], rules: { 'no-restricted-globals': ['error', 'Date'] } },
  {
    files: ['**/*.ts'],
    ignores: ['program/**', 'server.ts'],
    rules: { 'no-restricted-globals': ['error', 'process', 'Date'] },
  },
  wall(['*.ts'], ['http', 'log', 'postgres', 'program'], { ignores: ['index.ts', 'server.ts'] }),
  wall(['index.ts'], ['postgres', 'program']),
  wall(['http/**'], ['log', 'postgres', 'program']),
  wall(['log/**'], ['http', 'postgres', 'program']),
  wall(['postgres/**'], ['http', 'log', 'program']),
  // `postgres/` loads pg, an optional package, so `program/database.ts` imports it dynamically.
  wall(['program/**'], ['postgres(?!/url\\.js$)'], { names: [] }),
);
