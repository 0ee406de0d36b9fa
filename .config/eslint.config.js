import { defineConfig, globalIgnores } from 'eslint/config';
import { configs } from 'typescript-eslint';

import noImportCycle from './no-import-cycle.js';

/** Keeps the files that match from importing modules of some folders, and others by their names. */
const wall = (files, folders, names = ['node:process']) => ({
  files,
  rules: {
    'no-restricted-imports': [
      'error',
      { paths: names, patterns: [{ regex: `^(?:\\.{1,2}/)+(?:${folders.join('|')})/` }] },
    ],
  },
});

export default defineConfig(
  globalIgnores(['dist', '.test', '.tap', 'coverage', 'data', '**/node_modules']),
  {
    linterOptions: { reportUnusedDisableDirectives: 'error', reportUnusedInlineConfigs: 'error' },
    rules: {
      eqeqeq: 'error',
      'no-else-return': 'error',
      'no-fallthrough': 'error',
      'no-shadow-restricted-names': 'error',
      'object-shorthand': 'error',
      'prefer-const': 'error',
    },
  },
  {
    files: ['**/*.ts'],
    extends: [configs.strictTypeChecked, configs.stylisticTypeChecked],
    languageOptions: { parserOptions: { projectService: true } },
    rules: {
      '@typescript-eslint/consistent-type-exports': 'error',
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      // An element of a buffer is a number; `as number` says so, `!` would say nothing.
      '@typescript-eslint/non-nullable-type-assertion-style': 'off',
      '@typescript-eslint/only-throw-error': ['error', { allow: ['Failure'] }],
      // What was caught is passed on as it is.
      '@typescript-eslint/prefer-promise-reject-errors': [
        'error',
        { allowThrowingAny: true, allowThrowingUnknown: true },
      ],
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      '@typescript-eslint/switch-exhaustiveness-check': 'error',
    },
  },
  {
    files: ['src/**/*.ts'],
    plugins: { local: { rules: { 'no-import-cycle': noImportCycle } } },
    rules: {
      'local/no-import-cycle': 'error',
      // The wall clock may jump.
      'no-restricted-globals': ['error', 'Date'],
    },
  },
  {
    files: ['src/**/*.ts'],
    ignores: ['src/program/**', 'src/server.ts'],
    rules: { 'no-restricted-globals': ['error', 'process', 'Date'] },
  },
  wall(
    ['src/{channels,plant,plant-json,options,report,store,store-contract,system-error}.ts'],
    ['http', 'log', 'postgres', 'program'],
  ),
  wall(['src/index.ts'], ['postgres', 'program']),
  wall(['src/http/**'], ['log', 'postgres', 'program']),
  wall(['src/log/**'], ['http', 'postgres', 'program']),
  wall(['src/postgres/**'], ['http', 'log', 'program']),
  // Without the store, pg is not loaded.
  wall(['src/program/**'], ['postgres(?!/url\\.js$)'], []),
  {
    files: ['test/**/*.ts'],
    rules: {
      'no-restricted-syntax': [
        'error',
        ...['> ArrayExpression', '> ObjectExpression ArrayExpression'].map((array) => ({
          selector: `CallExpression[callee.property.name='match'] ${array}`,
          message: 'An array as a pattern matches longer ones, too: use strictSame, or exactly().',
        })),
        {
          selector: `CallExpression[callee.object.name='t'][callee.property.name='same']`,
          message: '1 and "1" are the same: use strictSame.',
        },
      ],
      // tap itself waits for a subtest, and so does node:test.
      '@typescript-eslint/no-floating-promises': [
        'error',
        {
          allowForKnownSafePromises: [
            { from: 'package', package: '@tapjs/core', name: 'PromiseWithSubtest' },
          ],
          allowForKnownSafeCalls: [{ from: 'package', package: 'node:test', name: 'test' }],
        },
      ],
      // A handler is a listener of `request`, too.
      '@typescript-eslint/no-misused-promises': [
        'error',
        { checksVoidReturn: { arguments: false } },
      ],
      '@typescript-eslint/require-await': 'off',
    },
  },
);
