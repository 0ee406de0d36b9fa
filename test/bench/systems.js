/** The systems that are measured, and which part of the work each one does. */

import { readFileSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { fileURLToPath } from 'node:url';

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
 * @property {string} [log]  the file in the data folder that must contain every plant answered 200
 * @property {() => Promise<number[]>} [readIds] the ids of all plants, if they are not in a log
 * @property {Record<string, string>} [env] instead of the path of the log
 */

/** @type {System[]} */
export const SYSTEMS = [
  { name: FLOOR, title: 'node:http, constant answer', work: [] },
  { name: 'fastify', title: `Fastify ${version('fastify')}, stores nothing`, work: CHECKED },
  {
    name: OURS,
    title: OURS,
    script: path('../../dist/server.js'),
    work: DURABLE,
    log: 'plants.jsonl',
  },
  ...(isBuiltin('node:sqlite')
    ? [
        { name: 'sqlite', title: 'node:http + node:sqlite', work: DURABLE },
        { name: 'sqlite-group', title: 'node:sqlite, group commit', work: DURABLE },
      ]
    : []),
  { name: 'lmdb', title: `node:http + lmdb ${version('lmdb')}`, work: DURABLE },
  {
    name: 'classic-level',
    title: `node:http + classic-level ${version('classic-level')}`,
    work: DURABLE,
  },
].map((system) => ({ script: path(`servers/${system.name}.js`), ...system }));

function version(name) {
  const { dependencies } = JSON.parse(readFileSync(path('package.json'), 'utf8'));
  return dependencies[name];
}

function path(relative) {
  return fileURLToPath(new URL(relative, import.meta.url));
}
