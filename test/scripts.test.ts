import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

import t from 'tap';

const { scripts } = JSON.parse(readFileSync('package.json', 'utf8')) as {
  scripts: Record<string, string>;
};

t.test('pretest fails if tap or the tests cannot be built', async (t) => {
  for (const [tap, npm] of [
    [0, 0],
    [3, 0],
    [0, 4],
  ] as const) {
    const stubs = `tap() { return ${tap}; }; npm() { return ${npm}; };`;
    const { status } = spawnSync('sh', ['-c', `${stubs} ${scripts.pretest}`]);
    t.equal(status, tap + npm, `tap build ends with ${tap}, npm run with ${npm}`);
  }
});
