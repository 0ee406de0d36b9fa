import { constants } from 'node:fs';

import t from 'tap';

import type { System } from '../../dist/log/system.js';
import { explore, type ExploreOptions } from './crash.js';
import { workloads } from './workloads.js';

/*
 * The simulation must be able to fail. Each of these changes breaks the log, and the exploration must
 * detect it.
 */

interface Mutation extends Partial<ExploreOptions> {
  readonly workload: keyof typeof workloads;
  readonly mutate: (fs: System) => System;
  /** Matches the message of a violation. */
  readonly finds: RegExp;
}

const { O_DSYNC, O_RDWR, O_WRONLY } = constants;

/** Of what is opened only to read, only folders are synced. */
const isFolder = (flags: number): boolean => (flags & (O_RDWR | O_WRONLY)) === 0;
const isFile = (flags: number): boolean => !isFolder(flags);

/** Leaves out the syncs for which `isLeftOut` returns true, by the flags of the file. */
function withoutSyncs(fs: System, isLeftOut: (flags: number) => boolean): System {
  const flagsOf: number[] = [];
  return {
    ...fs,
    async open(path, flags, mode) {
      const descriptor = await fs.open(path, flags, mode);
      flagsOf[descriptor] = flags;
      return descriptor;
    },
    fsync: async (descriptor) =>
      isLeftOut(flagsOf[descriptor] ?? 0) ? undefined : fs.fsync(descriptor),
  };
}

const mutations: Record<string, Mutation> = {
  'the log is opened without O_DSYNC': {
    workload: 'a log is created, in a folder of its own',
    mutate: (fs) => ({
      ...fs,
      open: (path, flags, mode) => fs.open(path, flags & ~O_DSYNC, mode),
    }),
    finds: /fern.* was lost/,
  },
  'the folder of a new log is not synced': {
    workload: 'a log is created, in a folder of its own',
    mutate: (fs) => withoutSyncs(fs, isFolder),
    finds: /fern.* was lost/,
  },
  'a cut is not synced': {
    workload: 'a disk is full, and has room again',
    mutate: (fs) => withoutSyncs(fs, isFile),
    finds: /line 3 is damaged/,
  },
  'a failed write is not cut off': {
    workload: 'a write fails',
    crashes: 2,
    mutate: (fs) => ({ ...fs, ftruncate: async () => undefined }),
    finds: /ivy.* was lost/,
  },
};

for (const [what, { workload, finds, ...options }] of Object.entries(mutations))
  t.test(`the exploration detects that ${what}`, async (t) => {
    const violations = await explore(workloads[workload], { crashes: 1, ...options });
    t.match(violations.find((each) => finds.test(each)) ?? violations[0], finds);
  });
