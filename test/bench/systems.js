/** The systems that are measured, and which part of the work each one does. */

import { readFileSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { fileURLToPath } from 'node:url';
import { classicLevelIds, lmdbIds, logIds, sqliteIds } from './stored-ids.js';

export const OURS = 'plant-store';
export const FLOOR = 'floor';
export const BARE_WRITE = 'bare-write';

const CHECKED = ['token', 'validation'];
const DURABLE = [...CHECKED, 'unique id', 'on disk'];

/**
 * @typedef {object} System
 * @property {string} name   the value for `--systems`
 * @property {string} title  the name in the report
 * @property {string} script absolute path
 * @property {string[]} work what it does before it responds
 * @property {(folder: string) => Promise<number[]>} [readIds] the ids of all plants on disk, which
 *   must include every plant answered 200
 * @property {Record<string, string>} [env] instead of the path of the log
 */

/** `node:sqlite` has no version of its own. */
const SQLITE_TITLE = `SQLite ${process.versions.sqlite}`;
const SQLITE = { work: DURABLE, readIds: sqliteIds };

/**
 * What every rival is compared with comes first, then what a user of Node has without installing
 * anything, then the rest.
 *
 * @type {System[]}
 */
export const SYSTEMS = [
  { name: FLOOR, title: 'node:http, constant answer', work: [] },
  {
    name: OURS,
    title: OURS,
    script: path('../../dist/server.js'),
    work: DURABLE,
    readIds: logIds,
  },
  ...(isBuiltin('node:sqlite')
    ? [
        { ...SQLITE, name: 'sqlite', title: `${SQLITE_TITLE}, a commit a request` },
        { ...SQLITE, name: 'sqlite-group', title: `${SQLITE_TITLE}, group commit` },
      ]
    : []),
  { name: 'fastify', title: `Fastify ${version('fastify')}, stores nothing`, work: CHECKED },
  {
    name: 'lmdb',
    title: `node:http + lmdb ${version('lmdb')}`,
    work: DURABLE,
    readIds: lmdbIds,
  },
  {
    name: 'classic-level',
    title: `node:http + classic-level ${version('classic-level')}`,
    work: DURABLE,
    readIds: classicLevelIds,
  },
].map((system) => ({ script: path(`servers/${system.name}.js`), ...system }));

function version(name) {
  const { dependencies } = JSON.parse(readFileSync(path('package.json'), 'utf8'));
  return dependencies[name];
}

function path(relative) {
  return fileURLToPath(new URL(relative, import.meta.url));
}
