import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { start } from '../system/program.js';
import { createLedger, startLoad } from './ledger.js';
import { missing, settingsFor, stopCleanly } from './support.js';

t.test(
  'plants are stored while the clock jumps by years',
  { skip: missing('faketime') },
  async (t) => {
    const folder = t.testdir({ clock: '-3650d' });
    const clock = join(folder, 'clock');
    const log = join(folder, 'plants.jsonl');
    const ledger = createLedger();
    const program = await start(t, { env: { ...settingsFor(log), ...fakeClock(clock) } });
    const { headers } = await fetch(program.url);
    t.ok(Date.parse(headers.get('date') ?? '') < Date.now() - 1e11, 'the clock is changed');
    for (const jump of ['+3650d', '-3650d', '+36500d', '-1', '+0']) {
      const load = startLoad(ledger, program, { plants: 300 });
      await load.reached(100);
      writeFileSync(clock, jump);
      await load.ended;
    }
    t.strictSame([...ledger.statuses.keys()], [200], 'every plant is answered with 200');
    await stopCleanly(t, program);
    ledger.check(log);
  },
);

t.test('only what knows when a certificate expires uses Date', async (t) => {
  const names = readdirSync('src', { recursive: true, encoding: 'utf8' });
  const sources = names.filter((name) => /(?<!credentials)\.ts$/.test(name));
  t.ok(sources.length > 10);
  for (const name of sources) t.notMatch(readFileSync(join('src', name), 'utf8'), /\bDate\b/, name);
});

/** Makes a program's wall clock follow a file. Its monotonic clock, which cannot jump, is unchanged. */
function fakeClock(file: string): Record<string, string> {
  return {
    // Not the command `faketime`: it fails if a killed process with the same number has left a semaphore.
    LD_PRELOAD: '/usr/$LIB/faketime/libfaketime.so.1',
    FAKETIME_TIMESTAMP_FILE: file,
    FAKETIME_NO_CACHE: '1',
    FAKETIME_DONT_FAKE_MONOTONIC: '1',
    DONT_FAKE_MONOTONIC: '1',
  };
}
