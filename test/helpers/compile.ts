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
/** The newest types of Node, in place of those of the oldest release. */
export const NEWEST_TYPES = { typeRoots: [join(CONSUMERS, 'typescript-7/node_modules/@types')] };
const MODULES = { nodenext: 'nodenext', bundler: 'esnext', node10: 'commonjs' } as const;

export interface Compilation {
  readonly release: keyof typeof TYPESCRIPT;
  readonly resolution: keyof typeof MODULES;
  /** Programs in the folder, by their names. */
  readonly programs: Readonly<Record<string, string>>;
  /** More options of the compiler, such as {@link NEWEST_TYPES}. */
  readonly options?: object;
}

/**
 * The errors that a release of TypeScript reports for programs in a folder, and for all types that
 * they import.
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
      // To check the declarations of other packages, too, takes long.
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
