import type { ExitCode } from '../exit.js';
import { openStore, withLog } from '../open-store.js';
import { readServerSettings } from '../settings/rules.js';
import type { Shutdown } from '../signals.js';
import { exportPlants } from './export.js';
import { importPlants } from './import.js';
import { repair } from './repair.js';
import { serve } from './serve.js';
import { verify } from './verify.js';

/** A command of the program: `plant-store NAME FILE`. `run` gets the file if there is one. */
export type Command = {
  /** The server has no name: it is what the program runs without arguments. */
  readonly name?: string;
  /** Its description in `--help`. */
  readonly about: string;
} & (
  | {
      readonly file: 'none' | 'optional';
      readonly run: (shutdown: Shutdown, file?: string) => Promise<ExitCode>;
    }
  | {
      readonly file: 'required';
      readonly run: (shutdown: Shutdown, file: string) => Promise<ExitCode>;
    }
);

/** Every command, in the order of `--help`. */
export const COMMANDS: readonly Command[] = [
  {
    file: 'none',
    about: 'store plants: POST /plants with a bearer token',
    async run(shutdown) {
      const settings = await readServerSettings(process.env);
      return serve(settings, shutdown, () => openStore(settings, 'retry', shutdown.requested));
    },
  },
  {
    name: 'verify',
    file: 'optional',
    about: 'check every line of the log, and change nothing',
    run: ({ requested }, file) => withLog(file, (path) => verify(path, requested)),
  },
  {
    name: 'repair',
    file: 'optional',
    about: 'rewrite damaged lines that hold a plant, remove the others',
    run: ({ requested }, file) => withLog(file, (path) => repair(path, requested)),
  },
  {
    name: 'import',
    file: 'required',
    about: 'add plants, one JSON object a line; - is stdin',
    run: ({ requested }, file) => importPlants(file, requested),
  },
  {
    name: 'export',
    file: 'optional',
    about: 'print all plants, as import takes them',
    run: ({ requested }, file) => exportPlants(file, requested),
  },
];

const FILE = { none: '', optional: '[FILE]', required: 'FILE' } as const;

/** The commands as `--help` shows them. */
export function commandsHelp(): string {
  const usages = COMMANDS.map(({ name = '', file, about }) => {
    const usage = `plant-store ${name} ${FILE[file]}`;
    return `${usage.padEnd(26)}  ${about}`;
  });
  return [...usages, 'plant-store --help | --version'].join('\n       ');
}
