import { readFileSync } from 'node:fs';

import t from 'tap';

import { expectFailedRun, MISUSED, run } from './helpers/program.js';

/** A preload that makes the program believe that it runs on another release of Node. */
const release = (node: string): string =>
  `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '${node}' } });`;

t.test('on an unsupported Node, the program reports the supported releases', async (t) => {
  const { engines } = JSON.parse(readFileSync('package.json', 'utf8')) as {
    engines: { node: string };
  };
  for (const node of ['20.18.3', '21.7.3', '22.11.0']) {
    const sentence = `needs Node ${engines.node}; this is Node ${node}`;
    await expectFailedRun(t, MISUSED, [sentence], { preload: release(node) });
  }
});

t.test('the program runs on the oldest supported releases of Node', async (t) => {
  for (const node of ['20.19.0', '22.12.0'])
    t.equal((await run(t, { args: ['--version'], preload: release(node) })).code, 0);
});
