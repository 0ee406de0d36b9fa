import { defineConfig, globalIgnores } from 'eslint/config';

import base from '../.config/eslint.config.js';

export default defineConfig(globalIgnores(['**/node_modules']), base, {
  files: ['**/*.ts'],
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
    // The handler of plants, which returns a promise, is also used as a listener of `request`.
    '@typescript-eslint/no-misused-promises': ['error', { checksVoidReturn: { arguments: false } }],
    '@typescript-eslint/require-await': 'off',
  },
});
