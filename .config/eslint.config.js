import { defineConfig } from 'eslint/config';
import { configs } from 'typescript-eslint';

/** The rules for all code. `src/` and `test/` have more, in files of this name, which ESLint finds by itself. */
export default defineConfig(
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
      // What was caught is passed on as it is.
      '@typescript-eslint/prefer-promise-reject-errors': [
        'error',
        { allowThrowingAny: true, allowThrowingUnknown: true },
      ],
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      '@typescript-eslint/switch-exhaustiveness-check': 'error',
    },
  },
);
