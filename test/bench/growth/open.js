/**
 * Opens a store of PLANTS plants, adds the plant NEW durably, and prints how long that took and the
 * memory of the process:
 *
 *   node open.js STORE FOLDER PLANTS NEW
 */

const [store, folder, plants, newId] = process.argv.slice(2);
const { open } = await import(`./${store}.js`);

const start = performance.now();
const { add, close } = await open(folder);
const opened = performance.now();
const isNew = await add({ id: Number(newId), name: 'Boston fern', tag: 'indoor' });
const added = performance.now();
const resident = process.memoryUsage.rss();

if (!isNew) throw new Error(`${store} contains ${newId} already`);
for (const id of [1, Number(plants)])
  if (await add({ id, name: 'Ivy' })) throw new Error(`${store} lacks ${id}`);
await close();
console.log(JSON.stringify({ open: opened - start, add: added - opened, resident }));
