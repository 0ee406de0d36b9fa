/*
 * Checks the store on servers that fail, for longer than `npm test` may take:
 *
 *     node .test/postgres/run.js [--long]
 *
 * --long checks for longer, and kills leaders under Patroni.
 */
import { LONG } from './support.js';

await import('./disks.check.js');
await import('./writers.check.js');
await import('./cuts.check.js');
await import('./promote.check.js');
await import('./instances.check.js');
if (LONG) await import('./patroni.js');
