/**
 * Measures what it costs to open a store of many plants, for the log and for two databases with the
 * same plants:
 *
 *   npm run bench growth -- [--plants 1000000,10000000,50000000] [--rounds 3] [--folder /tmp]
 *                           [--markdown FILE]
 *
 * 50 million plants take 7 GiB of disk. Every round opens every store in a new process, which then
 * adds one plant durably. The exit code is 0 whatever the figures are, and 1 if a store fails or
 * lacks a plant.
 */

import { createReadStream, mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { isBuiltin } from 'node:module';
import { cpus, release, tmpdir, totalmem } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { run, startingWith } from './measure.js';
import { aligned, median, significant, whole } from './report.js';
import { count, installPackages, refuseMemory, temporaryFolder } from './setup.js';
import { SYSTEMS } from './systems.js';

const STORES = ['plant-store', ...(isBuiltin('node:sqlite') ? ['sqlite'] : []), 'lmdb'];
const TITLES = {
  'plant-store': 'plant-store',
  sqlite: `SQLite ${process.versions.sqlite}`,
  lmdb: SYSTEMS.find(({ name }) => name === 'lmdb').title.replace('node:http + ', ''),
};
const MIB = 2 ** 20;
/** `blocks` of stat(2) has this unit whatever the file system uses. */
const BLOCK_BYTES = 512;

const COLUMNS = [
  { title: 'opens in ms', figure: ({ open }) => open, show: significant },
  { title: 'first plant ms', figure: ({ add }) => add, show: significant },
  { title: 'resident MiB', figure: ({ resident }) => resident / MIB, show: whole },
  { title: 'disk MiB', figure: ({ disk }) => disk / MIB, show: whole },
];

try {
  const settings = readSettings(process.argv.slice(2));
  refuseMemory(settings.folder);
  installPackages();
  report(await measureAll(settings), settings);
} catch (error) {
  console.error(`bench: ${error.message}`);
  process.exit(1);
}

function readSettings(args) {
  const { values } = parseArgs({
    args,
    options: {
      plants: { type: 'string', default: '1000000,10000000,50000000' },
      rounds: { type: 'string', default: '3' },
      folder: { type: 'string', default: tmpdir() },
      markdown: { type: 'string' },
    },
  });
  return {
    ...values,
    plants: values.plants.split(',').map((text) => count('plants', text)),
    rounds: count('rounds', values.rounds),
  };
}

async function measureAll({ folder: parent, plants: sizes, rounds }) {
  const folder = temporaryFolder(parent);
  const measurements = [];
  for (const plants of sizes) {
    for (const store of STORES) await fill(store, join(folder, store), plants);
    for (let round = 1; round <= rounds; round++)
      for (const store of startingWith(round - 1, STORES)) {
        const figures = await measure(store, join(folder, store), plants, round);
        const time = `${significant(figures.open)} ms`;
        console.error(`round ${round} of ${rounds}: ${store} opens ${whole(plants)} in ${time}`);
        measurements.push({ store, plants, ...figures });
      }
    for (const store of STORES) await rm(join(folder, store), { recursive: true });
  }
  return measurements;
}

async function fill(store, folder, plants) {
  mkdirSync(folder);
  const start = performance.now();
  await node('fill.js', store, folder, plants);
  const seconds = (performance.now() - start) / 1000;
  console.error(`${store} filled with ${whole(plants)} plants in ${significant(seconds)} s`);
}

/** Every round adds another plant. */
async function measure(store, folder, plants, round) {
  await readAll(folder);
  const figures = JSON.parse(await node('open.js', store, folder, plants, plants + round));
  return { ...figures, disk: diskUsage(folder) };
}

/** Brings the files of a store into the page cache, so that it is warm for each of them. */
async function readAll(folder) {
  for (const path of filesIn(folder))
    for await (const _ of createReadStream(path, { highWaterMark: MIB }));
}

function diskUsage(folder) {
  return filesIn(folder).reduce((sum, path) => sum + statSync(path).blocks * BLOCK_BYTES, 0);
}

function filesIn(folder) {
  return readdirSync(folder).map((name) => join(folder, name));
}

function node(script, ...args) {
  return run(process.execPath, [join(import.meta.dirname, 'growth', script), ...args]);
}

function report(measurements, { plants: sizes, rounds, markdown }) {
  const rows = sizes.flatMap((plants) =>
    STORES.map((store) => {
      const measured = measurements.filter((one) => one.store === store && one.plants === plants);
      const cells = COLUMNS.map(({ figure, show }) => show(median(measured.map(figure))));
      return [TITLES[store], whole(plants), ...cells];
    }),
  );
  const table = aligned([['store', 'plants', ...COLUMNS.map(({ title }) => title)], ...rows]);
  console.log(table);
  if (markdown === undefined) return;
  const [{ model }] = cpus();
  writeFileSync(
    markdown,
    `# Results with many plants

${table}
Medians of ${rounds} interleaved rounds; each opens a store in a new process. Its files are in the page cache.
Machine: ${model}, ${cpus().length} cores, ${whole(totalmem() / 2 ** 30)} GiB, Linux ${release().split('-', 1)}, Node ${process.versions.node}.

- opens in: until the store takes plants; loading its modules is not part of it
- first plant: until one new plant is on disk after that
- resident: memory of the process then, including Node and the pages of a mapped file
- disk: what the files take after that

Measured with

    npm run bench growth -- --plants ${sizes} --rounds ${rounds}
`,
  );
}
