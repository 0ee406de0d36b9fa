import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { promisify } from 'node:util';

/**
 * The documents whose commands, code and tables are tested. No two of them have the same heading.
 */
export const DOCUMENTS = [
  'README.md',
  '.github/CONTRIBUTING.md',
  '.github/SECURITY.md',
  'src/http/README.md',
  'src/log/README.md',
  'src/postgres/README.md',
  'src/program/MONITORING.md',
  'src/program/README.md',
  'src/program/deploy/README.md',
  'test/bench/README.md',
] as const;

const FOLDER = new URL('../../test/embedding/examples/', import.meta.url);

/** The sources of the programs in TypeScript that the documents show, by file name. */
export const EXAMPLES = Object.fromEntries(
  readdirSync(FOLDER)
    .filter((name) => name.endsWith('.ts'))
    .map((name) => [name, readFileSync(new URL(name, FOLDER), 'utf8')]),
);

/** The text of a document. */
export function read(document: (typeof DOCUMENTS)[number]): string {
  return readFileSync(new URL(`../../${document}`, import.meta.url), 'utf8');
}

/** The code blocks of a language under a heading, up to the next heading. */
export function blocks(heading: string, language: string): string[] {
  return blocksIn(section(heading), language);
}

/** The code blocks of a language in a text. */
export function blocksIn(text: string, language: string): string[] {
  const found = [...text.matchAll(/^```(\w+)\n(.*?)^```$/gms)];
  return found.flatMap(([, tag, code]) => (tag === language && code !== undefined ? [code] : []));
}

/** The only code block of a language under a heading. */
export function block(heading: string, language: string): string {
  const [code, ...more] = blocks(heading, language);
  if (code === undefined || more.length > 0)
    throw new Error(`there is not one block of ${language} under the heading ${heading}`);
  return code;
}

/** The rows of the only table under a heading, without the header row. */
export function rows(heading: string): string[][] {
  const [table, ...more] = section(heading).match(/(?:^\|.*\n)+/gm) ?? [];
  if (table === undefined || more.length > 0)
    throw new Error(`there is not one table under the heading ${heading}`);
  const [, , ...lines] = table.trim().split('\n');
  return lines.map((line) =>
    line
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim()),
  );
}

/** The contents of the code spans in a text. */
export function codeSpans(text: string): string[] {
  return [...text.matchAll(/`([^`]+)`/g)].flatMap(([, code]) => code ?? []);
}

/** The settings that a text assigns, such as a systemd unit or the options of `docker run`. */
export function settingsIn(text: string): Record<string, string> {
  const settings = text.matchAll(/(PLANT_STORE_\w+)=(\S+)/g);
  return Object.fromEntries([...settings].map(([, name = '', value = '']) => [name, value]));
}

/** Runs commands of a document in a folder. Resolves to what they print. */
export async function shell(
  commands: string,
  cwd: string,
  env: Record<string, string> = {},
): Promise<string> {
  const options = { cwd, env: { ...process.env, ...env } };
  const { stdout } = await promisify(execFile)('sh', ['-euc', commands], options);
  return stdout;
}

function section(heading: string): string {
  const text = sections.get(heading);
  if (text === undefined) throw new Error(`no document has the heading ${heading}`);
  return text;
}

const sections = new Map<string, string>();
for (const document of DOCUMENTS)
  for (const part of read(document)
    .split(/^#+ (?=[^\n]*\n\n)/m)
    .slice(1)) {
    const end = part.indexOf('\n');
    const heading = part.slice(0, end);
    if (sections.has(heading)) throw new Error(`the heading ${heading} is not unique`);
    sections.set(heading, part.slice(end));
  }
