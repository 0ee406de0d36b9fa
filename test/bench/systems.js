/** The systems that are measured, and which part of the work each one does. */

import { readFileSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { fileURLToPath } from 'node:url';
import { lineIds, lmdbIds, logIds, sqliteIds } from './stored-ids.js';

export const OURS = 'plant-store';

const DURABLE = ['token', 'validation', 'unique id', 'on disk'];

/**
 * @typedef {object} System
 * @property {string} name   the value for `--systems`
 * @property {string} title  the name in the report
 * @property {string} script absolute path
 * @property {string[]} work what it does before it responds
 * @property {(folder: string) => Promise<number[]>} [readIds] the ids of all plants on disk, which
 *   must include every plant answered 200
 * @property {string} [database] the environment variable for the URL of a PostgreSQL database, if it needs one
 * @property {Record<string, string>} [env] instead of the path of the log
 * @property {() => Promise<void>} [prepare] called before each start
 */

/**
 * The floor comes first, then this service, then what others would run, then servers with group commit.
 *
 * @type {System[]}
 */
export const SYSTEMS = [
  { name: 'floor', title: 'node:http, stores nothing', work: [] },
  {
    name: OURS,
    title: OURS,
    script: path('../../dist/server.js'),
    readIds: logIds,
  },
  {
    name: 'plant-store-postgres',
    title: 'plant-store on PostgreSQL',
    script: path('../../dist/server.js'),
    database: 'PLANT_STORE_DATABASE_URL',
  },
  {
    name: 'by-hand',
    title: 'node:http by hand, one datasync for each request',
    readIds: lineIds,
  },
  {
    name: 'fastify-pg',
    title: `Fastify ${version('fastify')} with pg, one INSERT for each request`,
    database: 'DATABASE_URL',
  },
  {
    name: 'express-sqlite',
    title: `Express ${version('express')} with node:sqlite, one INSERT for each request`,
    readIds: sqliteIds,
  },
  {
    name: 'sqlite-group',
    title: `node:http with node:sqlite ${process.versions.sqlite}, group commit`,
    readIds: sqliteIds,
  },
  {
    name: 'lmdb',
    title: `node:http with lmdb ${version('lmdb')}, group commit`,
    readIds: lmdbIds,
  },
]
  .filter(({ name }) => !name.includes('sqlite') || isBuiltin('node:sqlite'))
  .map((system) => ({ script: path(`servers/${system.name}.js`), work: DURABLE, ...system }));

/** The release of a package, from the manifest of this folder or of the repository. */
function version(name) {
  const manifests = ['package.json', '../../package.json'].map((file) =>
    JSON.parse(readFileSync(path(file), 'utf8')),
  );
  return { ...manifests[1].devDependencies, ...manifests[0].dependencies }[name];
}

function path(relative) {
  return fileURLToPath(new URL(relative, import.meta.url));
}
