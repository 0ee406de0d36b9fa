/*
 * Recovers from every state that a crash can leave during a workload. With two crashes, which take
 * minutes, also from every state that a crash during one of these recoveries can leave.
 */
import t from 'tap';

import { byLength } from '../length.js';
import { explore } from './explore.js';
import { workloads } from './workloads.js';

const crashes = byLength(1, 2, 2);
if (crashes > 1) t.setTimeout(0);

for (const dsyncIsDurable of [true, false])
  for (const [what, workload] of Object.entries(workloads)) {
    const condition = dsyncIsDurable ? '' : ', and O_DSYNC is not enough';
    t.test(`no acknowledged plant is lost in any crash when ${what}${condition}`, async (t) => {
      const { states, violations } = await explore(workload, { crashes, dsyncIsDurable });
      t.strictSame(violations, []);
      t.comment(`${states} states`);
    });
  }
