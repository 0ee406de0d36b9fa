import { constants } from 'node:fs';

import t from 'tap';

import type { OpenFile, System } from '../../dist/log/files.js';
import { explore, type ExploreOptions } from './crash.js';
import { TORN_AT, workloads } from './workloads.js';

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

const { O_APPEND, O_DSYNC, O_RDWR, O_WRONLY } = constants;

/** Of what is opened only to read, only folders are synced. */
const isFolder = (flags: number): boolean => (flags & (O_RDWR | O_WRONLY)) === 0;
const isFile = (flags: number): boolean => !isFolder(flags);

/** Opens the files whose paths match without `O_DSYNC`. */
function withoutDsync(fs: System, paths: RegExp): System {
  const open: System['open'] = (path, flags, mode) =>
    fs.open(path, paths.test(path) ? flags & ~O_DSYNC : flags, mode);
  return { ...fs, open };
}

/** Changes what the files do that are opened. */
function changingFiles(
  fs: System,
  change: (file: OpenFile, flags: number) => Partial<OpenFile>,
): System {
  return {
    ...fs,
    async open(path, flags, mode) {
      const file = await fs.open(path, flags, mode);
      return { ...file, ...change(file, flags) };
    },
  };
}

/** Leaves out the syncs for which `isLeftOut` returns true, by the flags of the file. */
function withoutSyncs(fs: System, isLeftOut: (flags: number) => boolean): System {
  return changingFiles(fs, (file, flags) => ({
    sync: async () => (isLeftOut(flags) ? undefined : file.sync()),
  }));
}

/** Leaves out the sync of the folder that follows a rename to a path that matches. */
function withoutSyncAfterRename(fs: System, to: RegExp): System {
  let isNext = false;
  function isLeftOut(flags: number): boolean {
    const isIt = isNext && isFolder(flags);
    if (isIt) isNext = false;
    return isIt;
  }
  return {
    ...withoutSyncs(fs, isLeftOut),
    async rename(from, path) {
      isNext = to.test(path);
      await fs.rename(from, path);
    },
  };
}

/** Leaves out the sync that follows a cut. */
function withoutSyncAfterCut(fs: System): System {
  return changingFiles(fs, (file) => {
    let isCut = false;
    return {
      sync: async () => (isCut ? undefined : file.sync()),
      truncate(size) {
        isCut = true;
        return file.truncate(size);
      },
    };
  });
}

/** Cuts off a torn tail before the file for its copy is created. */
function cuttingFirst(fs: System): System {
  let log: OpenFile | undefined;
  return {
    ...fs,
    async open(path, flags, mode) {
      if (path.endsWith('.torn.new')) await log?.truncate(TORN_AT);
      const file = await fs.open(path, flags, mode);
      if (flags & O_APPEND) log = file;
      return file;
    },
  };
}

/** Returns from a write before it is complete. */
function returningTooEarly(fs: System): System {
  return {
    ...fs,
    async write(descriptor, bytes) {
      void fs.write(descriptor, bytes);
      return { bytesWritten: bytes.length };
    },
  };
}

const mutations: Record<string, Mutation> = {
  'the log is opened without O_DSYNC': {
    workload: 'a log is created, in folders of its own',
    mutate: (fs) => withoutDsync(fs, /jsonl$/),
    finds: /fern.* was lost/,
  },
  'a write is not synced, though O_DSYNC does not reach the disk': {
    workload: 'a log is created, in folders of its own',
    dsyncIsDurable: false,
    mutate: (fs) => withoutSyncs(fs, isFile),
    finds: /fern.* was lost/,
  },
  'a plant is acknowledged before its write has returned': {
    workload: 'a log is created, in folders of its own',
    mutate: returningTooEarly,
    finds: /fern.* was lost/,
  },
  'the folder of a new log is not synced': {
    workload: 'a log is created, in folders of its own',
    mutate: (fs) => withoutSyncs(fs, isFolder),
    finds: /fern.* was lost/,
  },
  'a log is not synced before lines of a killed process are taken for durable': {
    workload: 'a log is created, in folders of its own',
    crashes: 2,
    mutate: (fs) => withoutSyncs(fs, isFile),
    finds: /fern.* was lost/,
  },
  'the copy of a torn tail is not synced': {
    workload: 'a log with a torn tail is opened',
    mutate: (fs) => withoutDsync(fs, /\.torn\.new$/),
    finds: /the torn tail .* was lost/,
  },
  'a torn tail is cut off before it is copied': {
    workload: 'a log with a torn tail is opened',
    mutate: cuttingFirst,
    finds: /the torn tail .* was lost/,
  },
  'a cut is not synced': {
    workload: 'a disk is full, and has room again',
    mutate: withoutSyncAfterCut,
    finds: /line 3 is damaged/,
  },
  'a failed write is not cut off': {
    workload: 'a write fails',
    crashes: 2,
    mutate: (fs) => changingFiles(fs, () => ({ truncate: async () => undefined })),
    finds: /ivy.* was lost/,
  },
  'the folder is not synced after the damaged lines were moved': {
    workload: 'a damaged log is repaired',
    mutate: (fs) => withoutSyncAfterRename(fs, /\.damaged-/),
    finds: /the damaged line .* was lost/,
  },
  'the folder is not synced after a repaired log was renamed': {
    workload: 'a damaged log is repaired',
    mutate: (fs) => withoutSyncAfterRename(fs, /jsonl$/),
    finds: /line 2 is damaged/,
  },
};

for (const [what, { workload, finds, ...options }] of Object.entries(mutations))
  t.test(`the exploration detects that ${what}`, async (t) => {
    const { violations } = await explore(workloads[workload], { crashes: 1, ...options });
    t.match(violations.find((each) => finds.test(each)) ?? violations[0], finds);
  });
