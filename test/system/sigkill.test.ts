/*
 * Ends the program with SIGKILL at random moments under load, and looks for every acknowledged
 * plant.
 */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import t from 'tap';

import { byLength } from '../helpers/effort.js';
import { createLedger, startLoad } from '../helpers/load.js';
import { settingsFor, start } from '../helpers/program.js';

const ROUNDS = byLength(1, 25, 200);

/** The longest time from the first plant to the SIGKILL, in ms. */
const MAX_LIFE_MS = 250;

t.setTimeout(0);

for (let round = 1; round <= ROUNDS; round++)
  t.test(`round ${round} of ${ROUNDS}: every acknowledged plant survives SIGKILL`, async (t) => {
    const log = join(t.testdir(), 'plants.jsonl');
    const env = settingsFor(log);
    const ledger = createLedger();

    const first = await start(t, { env });
    const load = startLoad(ledger, first.port, { bytes: 200_000 });
    await sleep(MAX_LIFE_MS * Math.random());
    t.strictSame(await first.stop('SIGKILL'), { code: null, signal: 'SIGKILL' });
    await load.ended;

    const second = await start(t, { env });
    ledger.expectNothingLost(log);
    t.ok(second.plants >= ledger.acknowledged, `it has read ${second.plants} plants`);
    await startLoad(ledger, second.port, { plants: 100 }).ended;
    t.strictSame([...ledger.outcomes.keys()].filter(Number), [200], 'no plant is refused');
    t.strictSame(await second.stop('SIGKILL'), { code: null, signal: 'SIGKILL' });
    ledger.expectNothingLost(log);
    t.comment(`${ledger.acknowledged} plants were answered with 200`);
  });
