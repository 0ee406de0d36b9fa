import { writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import type ts from 'typescript';

import { run } from './command.js';

const CONSUMERS = fileURLToPath(new URL('../test/consumers', import.meta.url));
const TYPESCRIPT = {
  '5.9': join(CONSUMERS, 'typescript-5.9/node_modules/typescript'),
  '6': 'typescript',
  '7': join(CONSUMERS, 'typescript-7/node_modules/typescript'),
} as const;
const MODULES = { nodenext: 'nodenext', bundler: 'esnext' } as const;

export const RELEASES = ['5.9', '6', '7'] as const;
export const RESOLUTIONS = ['nodenext', 'bundler'] as const;

export interface Compilation {
  readonly release: (typeof RELEASES)[number];
  readonly resolution: (typeof RESOLUTIONS)[number];
  readonly folder: string;
  /** The names of the programs in the folder. */
  readonly programs: readonly string[];
}

/** What a release of TypeScript finds wrong with programs and with the types that they import. */
export async function typeFaults(compilation: Compilation): Promise<string[]> {
  const { release, resolution, folder, programs } = compilation;
  const config = {
    compilerOptions: {
      module: MODULES[resolution],
      moduleResolution: resolution,
      target: 'es2023',
      // As a program for Node has it: what a browser brings is as much again to read.
      lib: ['es2023'],
      strict: true,
      exactOptionalPropertyTypes: true,
      resolveJsonModule: true,
      skipLibCheck: false,
      noEmit: true,
    },
    files: programs,
  };
  if (release !== '7') return faultsOf(release, folder, config);
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config));
  try {
    await run(folder, process.execPath, join(TYPESCRIPT[release], 'bin/tsc'));
    return [];
  } catch (error) {
    return [(error as Error).message];
  }
}

/**
 * Looks at the programs and at this package. To check all that typebox and Node declare as well takes
 * these releases twenty seconds; 7 does it in three.
 */
function faultsOf(release: '5.9' | '6', folder: string, config: object): string[] {
  const compiler = createRequire(import.meta.url)(TYPESCRIPT[release]) as typeof ts;
  const { errors, fileNames, options } = compiler.parseJsonConfigFileContent(
    config,
    compiler.sys,
    folder,
  );
  const program = compiler.createProgram(fileNames, options);
  const ours = /^(?!.*\/node_modules\/)|\/node_modules\/plant-store\//;
  const files = program.getSourceFiles().filter(({ fileName }) => ours.test(fileName));
  const faults = [
    ...errors,
    ...program.getOptionsDiagnostics(),
    ...files.flatMap((file) => program.getSyntacticDiagnostics(file)),
    ...files.flatMap((file) => program.getSemanticDiagnostics(file)),
  ];
  return faults.map(({ file, messageText }) => {
    const text = compiler.flattenDiagnosticMessageText(messageText, '\n');
    return file ? `${file.fileName.slice(folder.length + 1)}: ${text}` : text;
  });
}
