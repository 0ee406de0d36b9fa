/** The systems that are measured, and which part of the work each one does. */

import { readFileSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { fileURLToPath } from 'node:url';
import { lmdbIds, logIds, sqliteIds } from './stored-ids.js';

export const OURS = 'plant-store';

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
 * @property {() => Promise<void>} [prepare] called before each start
 */

/**
 * The floor comes first, then what a user of Node has without installing anything, then the rest.
 *
 * @type {System[]}
 */
export const SYSTEMS = [
  { name: 'floor', title: 'node:http, constant answer', work: [] },
  {
    name: OURS,
    title: OURS,
    script: path('../../dist/server.js'),
    work: DURABLE,
    readIds: logIds,
  },
  ...(isBuiltin('node:sqlite')
    ? [
        {
          name: 'sqlite-group',
          title: `SQLite ${process.versions.sqlite}, group commit`,
          work: DURABLE,
          readIds: sqliteIds,
        },
      ]
    : []),
  { name: 'fastify', title: `Fastify ${version('fastify')}, stores nothing`, work: CHECKED },
  {
    name: 'lmdb',
    title: `node:http + lmdb ${version('lmdb')}`,
    work: DURABLE,
    readIds: lmdbIds,
  },
].map((system) => ({ script: path(`servers/${system.name}.js`), ...system }));

function version(name) {
  const { dependencies } = JSON.parse(readFileSync(path('package.json'), 'utf8'));
  return dependencies[name];
}

function path(relative) {
  return fileURLToPath(new URL(relative, import.meta.url));
}
