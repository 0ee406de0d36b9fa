/**
 * Preloaded into a server that is measured, the same for each (`--expose-gc --import`). Answers its
 * parent's questions over the IPC channel:
 *
 * - `usage`: processor time and peak memory since the process started
 * - `memory`: what is in use after a forced collection
 * - `delay`: the longest pause of the event loop since this was last asked
 *
 * Sampling the event loop needs a timer, so it starts with the first question about it. Until then
 * the server runs as without this module.
 */

import { readFileSync } from 'node:fs';
import { monitorEventLoopDelay } from 'node:perf_hooks';

/** Sampling interval for the event loop's delay, in ms: shorter pauses go unnoticed. */
const RESOLUTION = 5;

const delays = monitorEventLoopDelay({ resolution: RESOLUTION });

const ANSWERS = {
  usage,
  memory() {
    globalThis.gc();
    // The program did not cause this pause.
    setImmediate(() => delays.reset());
    return process.memoryUsage();
  },
  delay() {
    const pause = delays.max / 1e6 - RESOLUTION;
    delays.enable();
    delays.reset();
    return pause;
  },
};

process.on('message', (question) => process.send(ANSWERS[question]()));
process.channel.unref();

/** Processor times in ms, memory in bytes. What only Linux reports is missing elsewhere. */
function usage() {
  const { user, system } = process.cpuUsage();
  return {
    cpu: (user + system) / 1000,
    mainThread: fromProc(`task/${process.pid}/schedstat`, /^\d+/, 1e-6),
    peakMemory: fromProc('status', /(?<=^VmHWM:\s+)\d+(?= kB$)/m, 1024),
  };
}

/** The number that `pattern` matches in a file of /proc/self, times `unit`. */
function fromProc(file, pattern, unit) {
  if (process.platform !== 'linux') return undefined;
  return Number(pattern.exec(readFileSync(`/proc/self/${file}`, 'utf8'))[0]) * unit;
}
