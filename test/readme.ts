import { readFileSync } from 'node:fs';

const README = readFileSync(new URL('../README.md', import.meta.url), 'utf8');

/** All that stands under a heading of the README, up to the next one. */
export function text(heading: string): string {
  const section = sections.get(heading);
  if (section === undefined) throw new Error(`the README has no heading ${heading}`);
  return section;
}

/** The blocks of code under a heading, in their order. */
export function blocks(heading: string, language: string): string[] {
  const found = [...text(heading).matchAll(/^```(\w+)\n(.*?)^```$/gms)];
  return found.flatMap(([, tag, code]) => (tag === language && code !== undefined ? [code] : []));
}

/** The only block of code in a language under a heading. */
export function block(heading: string, language: string): string {
  const [code, ...more] = blocks(heading, language);
  if (code === undefined || more.length > 0)
    throw new Error(`not one block of ${language} under the heading ${heading} of the README`);
  return code;
}

/** The rows of the tables under a heading, as their cells; the names of the columns are rows too. */
export function rows(heading: string): string[][] {
  const lines = text(heading)
    .split('\n')
    .filter((line) => line.startsWith('| '));
  return lines
    .filter((line) => !/^[|\s:-]+$/.test(line))
    .map((line) =>
      line
        .split('|')
        .slice(1, -1)
        .map((cell) => cell.trim()),
    );
}

const sections = new Map(
  README.split(/^#+ (?=[^\n]*\n\n)/m).map((section) => {
    const end = section.indexOf('\n');
    return [section.slice(0, end), section.slice(end)];
  }),
);
