/* Acts of other processes on an open log, and the logs on which they are tried. */
import {
  appendFileSync,
  chmodSync,
  copyFileSync,
  linkSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';

import type { Test } from 'tap';

import { FERN, IVY } from '../helpers/plants.js';
import { logOf } from './support.js';

/** A log, and the paths that lead to it. */
export interface Place {
  /** The path by which the log is opened. */
  readonly given: string;
  readonly real: string;
  /** A symbolic link on the given path. */
  readonly link?: string;
  /** Another log, without plants. */
  readonly other: string;
}

export const STORED = [FERN, IVY];

/** The ways in which a log is named. */
export const KINDS = ['a path', 'a link', 'a link to its folder'] as const;

export function createPlace(t: Test, kind: (typeof KINDS)[number]): Place {
  const root = t.testdir({
    real: { 'plants.jsonl': logOf(STORED) },
    links: {},
    other: { 'plants.jsonl': '' },
  });
  const [real, other] = [join(root, 'real', 'plants.jsonl'), join(root, 'other', 'plants.jsonl')];
  if (kind === 'a path') return { given: real, real, other };
  const isFile = kind === 'a link';
  const link = join(root, 'links', 'link');
  symlinkSync(isFile ? real : dirname(real), link);
  return { given: isFile ? link : join(link, 'plants.jsonl'), real, other, link };
}

export type Act = (place: Place) => void;

/** Replaces what is at a path by a new file with this content, as `sed -i` and editors do. */
function replace(path: string, content: string | Buffer): void {
  writeFileSync(`${path}.new`, content);
  renameSync(`${path}.new`, path);
}

export const HARMFUL: Record<string, Act> = {
  'empty the file': ({ real }) => truncateSync(real),
  'cut off its last byte': ({ real }) => truncateSync(real, statSync(real).size - 1),
  'append a byte': ({ real }) => appendFileSync(real, '\n'),
  'append a byte through the given path': ({ given }) => appendFileSync(given, '\n'),
  'remove the file': ({ real }) => rmSync(real),
  'remove what has the given path': ({ given }) => rmSync(given),
  'rename the file': ({ real }) => renameSync(real, `${real}.1`),
  'rotate the file'({ real }) {
    renameSync(real, `${real}.1`);
    writeFileSync(real, '');
  },
  'replace the file by a copy': ({ real }) => replace(real, readFileSync(real)),
  'replace the given path by a copy': ({ given }) => replace(given, readFileSync(given)),
  'replace the given path by an empty file': ({ given }) => replace(given, ''),
  'rename its folder': ({ real }) => renameSync(dirname(real), `${dirname(real)}.old`),
  'remove its folder': ({ real }) => rmSync(dirname(real), { recursive: true }),
  'replace its folder by an empty one'({ real }) {
    renameSync(dirname(real), `${dirname(real)}.old`);
    mkdirSync(dirname(real));
  },
};

/** The harmful acts that need a link. */
export const HARMFUL_TO_LINKS: Record<string, Act> = {
  'remove the link': ({ link = '' }) => rmSync(link),
  'let the link lead to another log'({ given, link = '', other }) {
    rmSync(link);
    symlinkSync(given === link ? other : dirname(other), link);
  },
};

export const HARMLESS: Record<string, Act> = {
  'change its times': ({ real }) => utimesSync(real, 0, 0),
  'change its mode': ({ given }) => chmodSync(given, 0o640),
  'read it': ({ given }) => readFileSync(given),
  'link it in another folder': ({ real }) => linkSync(real, join(dirname(real), '..', 'hard')),
  'link it in its folder': ({ real }) => linkSync(real, `${real}.hard`),
  'link to it': ({ real }) => symlinkSync(real, `${real}.link`),
  'copy it': ({ real }) => copyFileSync(real, `${real}.copy`),
  'create a file beside it': ({ real }) => writeFileSync(`${real}.other`, ''),
  'rename it and back'({ real }) {
    renameSync(real, `${real}.1`);
    renameSync(`${real}.1`, real);
  },
  'rename its folder and back'({ real }) {
    renameSync(dirname(real), `${dirname(real)}.old`);
    renameSync(`${dirname(real)}.old`, dirname(real));
  },
  'let a link to it lead there by another way'({ given, real, link }) {
    if (link === undefined) return;
    rmSync(link);
    symlinkSync(join('..', 'real', given === link ? 'plants.jsonl' : ''), link);
    statSync(real);
  },
};

/** The harmful acts on a log that is named in this way. */
export function harmfulTo(kind: (typeof KINDS)[number]): Record<string, Act> {
  return kind === 'a path' ? HARMFUL : { ...HARMFUL, ...HARMFUL_TO_LINKS };
}
