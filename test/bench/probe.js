/**
 * Loaded into the program that is measured (`--expose-gc --import`): tells its parent, when asked,
 * how long the event loop was held up since the last time, and what memory is in use after all that
 * can be collected has been.
 */

import { monitorEventLoopDelay } from 'node:perf_hooks';

/** How often the histogram looks at the clock, in ms: shorter pauses go unseen. */
const RESOLUTION = 5;

const delays = monitorEventLoopDelay({ resolution: RESOLUTION });
delays.enable();

process.on('message', (question) => {
  if (question === 'delay') {
    process.send(delays.max / 1e6 - RESOLUTION);
    delays.reset();
  } else {
    globalThis.gc();
    process.send(process.memoryUsage());
    // The collection was ours, not the program's.
    setImmediate(() => delays.reset());
  }
});
process.channel.unref();
