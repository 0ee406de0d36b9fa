/*
 * Checks the store on servers that fail. TEST_LENGTH=long checks for longer, and kills leaders under
 * Patroni.
 */
import { isLong } from '../length.js';

await import('./disks.check.js');
await import('./writers.check.js');
await import('./cuts.check.js');
await import('./promote.check.js');
await import('./instances.check.js');
if (isLong) await import('./patroni.js');
