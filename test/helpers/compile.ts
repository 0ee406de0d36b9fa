import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { execute } from './command.js';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const CONSUMERS = join(ROOT, 'test/package/consumers');
const TYPESCRIPT = {
  '5.9': join(CONSUMERS, 'typescript-5.9/node_modules/typescript'),
  '6': join(ROOT, 'node_modules/typescript'),
  '7': join(CONSUMERS, 'typescript-7/node_modules/typescript'),
} as const;
/**
 * Options that use the type declarations of the newest Node in place of the oldest supported one.
 */
export const NEWEST_TYPES = { typeRoots: [join(CONSUMERS, 'typescript-7/node_modules/@types')] };
const MODULES = { nodenext: 'nodenext', bundler: 'esnext', node10: 'commonjs' } as const;

export interface Compilation {
  readonly release: keyof typeof TYPESCRIPT;
  readonly resolution: keyof typeof MODULES;
  /** The programs to compile, by the names of their files in the folder. */
  readonly programs: Readonly<Record<string, string>>;
  /** Additional compiler options, such as {@link NEWEST_TYPES}. */
  readonly options?: object;
}

/**
 * Compiles programs in a folder with a release of TypeScript, and resolves to the errors that it
 * reports, or an empty string.
 */
export async function typeFaults(folder: string, compilation: Compilation): Promise<string> {
  const { release, resolution, programs, options } = compilation;
  const config = {
    compilerOptions: {
      module: MODULES[resolution],
      moduleResolution: resolution,
      target: 'es2023',
      // No `dom`: a program for Node does not need it, and it would double the time.
      lib: ['es2023'],
      types: ['node'],
      strict: true,
      exactOptionalPropertyTypes: true,
      resolveJsonModule: true,
      // Checking the declarations of other packages, too, would take long.
      skipLibCheck: true,
      noEmit: true,
      ...options,
    },
    files: Object.keys(programs),
  };
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config));
  try {
    return await execute(folder, process.execPath, join(TYPESCRIPT[release], 'bin/tsc'));
  } catch (error) {
    return (error as { stdout: string }).stdout;
  }
}
