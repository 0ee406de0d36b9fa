import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

import t from 'tap';

import { asModule, expectFailedRun, MISUSED, run } from './helpers/program.js';

/** A preload that makes the program believe that it runs on another release of Node. */
const release = (node: string): string =>
  `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '${node}' } });`;

/** Begins a build with another release of Node. */
function build(node: string) {
  const args = ['--import', asModule(release(node)), '.config/node-release.cjs'];
  return spawnSync(process.execPath, args, { encoding: 'utf8' });
}

t.test(
  'on an unsupported Node, the program and the build report the supported releases',
  async (t) => {
    const { engines } = JSON.parse(readFileSync('package.json', 'utf8')) as {
      engines: { node: string };
    };
    for (const node of ['20.18.3', '21.7.3', '22.11.0']) {
      const sentence = `needs Node ${engines.node}; this is Node ${node}`;
      await expectFailedRun(t, MISUSED, [sentence], { preload: release(node) });
      t.match(build(node), { status: MISUSED, stderr: `plant-store: ${sentence}\n` });
    }
  },
);

t.test('the program runs on the oldest supported releases of Node', async (t) => {
  for (const node of ['20.19.0', '22.12.0']) {
    t.equal((await run(t, { args: ['--version'], preload: release(node) })).code, 0);
    t.match(build(node), { status: 0, stderr: /^$/ });
  }
});
