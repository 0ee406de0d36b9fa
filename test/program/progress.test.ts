import t from 'tap';

import { ENV, LARGE_LOG, launch } from '../system/program.js';

/** A preload: a second passes with each look at the clock. */
const SLOW = 'let now = 0; performance.now = () => (now += 1000);';

for (const command of ['', 'verify', 'repair'])
  t.test(`plant-store ${command} reports its progress through a large log`, async (t) => {
    const cwd = t.testdir({ 'plants.jsonl': LARGE_LOG });
    const args = command ? [command] : [];
    const program = launch(t, { args, cwd, env: ENV, preload: SLOW });
    await program.says('stdout', /2000 plants|plants: 2000|no line/);
    const reports = program.stderr
      .split('\n')
      .flatMap((line) => /^plant-store: reading .+plants\.jsonl: (\d+) %$/.exec(line)?.[1] ?? []);
    const percentages = reports.map(Number);
    t.ok(percentages.length > 2, reports.join(', '));
    t.strictSame(
      percentages,
      percentages.toSorted((a, b) => a - b),
    );
    t.equal(percentages.at(-1), 100);
  });
