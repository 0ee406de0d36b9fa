/*
 * Recovers from every state that a crash can leave during a workload. With two crashes, it also
 * recovers from every state that a crash during one of these recoveries can leave. For all
 * workloads, this takes minutes.
 */
import t from 'tap';

import { byLength } from '../helpers/effort.js';
import { explore } from './crash.js';
import { workloads, type Workload } from './workloads.js';

const names = Object.keys(workloads);
/**
 * The workloads that a short run explores with two crashes: in these, a second crash finds most.
 */
const TWICE = ['a log is created, in a folder of its own', 'a write fails'];

t.setTimeout(1_800_000);

for (const dsyncIsDurable of [true, false])
  for (const [what, workload] of Object.entries<Workload>(workloads)) {
    if (workload.needsDsync && !dsyncIsDurable) continue;
    const condition = dsyncIsDurable ? '' : ', and O_DSYNC is not enough';
    const twice = byLength(dsyncIsDurable ? TWICE : [], names, names);
    t.test(`no acknowledged plant is lost in any crash when ${what}${condition}`, async (t) => {
      const crashes = twice.includes(what) ? 2 : 1;
      const { violations } = await explore(workload, { crashes, dsyncIsDurable });
      t.strictSame(violations, []);
    });
  }
