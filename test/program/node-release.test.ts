import { readFileSync } from 'node:fs';

import t from 'tap';

import { failsToRun, MISUSED, run } from '../system/program.js';

const SCRIPTS = ['dist/server.js', 'dist/postgres-server.js'];

/** A preload: the program takes its Node for another release. */
const release = (node: string): string =>
  `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '${node}' } });`;

t.test('a Node that is too old is reported, with the release that is needed', async (t) => {
  const { engines } = JSON.parse(readFileSync('package.json', 'utf8')) as {
    engines: { node: string };
  };
  const needed = engines.node.replace('>=', '');
  for (const script of SCRIPTS) {
    const sentence = `needs Node ${needed} or later; this is Node 20.18.3`;
    await failsToRun(t, MISUSED, [sentence], { script, preload: release('20.18.3') });
  }
});

t.test('the oldest release, and later ones, run the program', async (t) => {
  for (const script of SCRIPTS)
    for (const node of ['20.19.0', '26.0.0']) {
      const options = { script, args: ['--version'], preload: release(node) };
      t.strictSame((await run(t, options)).code, 0);
    }
});
