/*
 * Lets other processes act on an open log, at random times. The first act has the seed of the run,
 * the second act the next number, and so on. To repeat a failure, set TEST_SEED to the number in
 * its title: the run begins with that act.
 */
import { existsSync } from 'node:fs';
import { setImmediate as nextTurn } from 'node:timers/promises';

import t from 'tap';

import { openLog, openPlantLog } from '../../dist/log/log.js';
import { nodeSystem, type System } from '../../dist/log/system.js';
import { createRandom, type Random } from '../crash-states/random.js';
import { statusWith, TOKEN } from '../helpers/client.js';
import { byLength, seed } from '../helpers/effort.js';
import { FERN, inJson, manyPlants, MOSS } from '../helpers/plants.js';
import { FAILED, run, SERVER, settingsFor, start } from '../helpers/program.js';
import {
  createPlace,
  HARMFUL,
  HARMFUL_TO_LINKS,
  harmfulTo,
  HARMLESS,
  KINDS,
  STORED,
  type Act,
  type Place,
} from './acts.js';
import { ignore, systemError, UNAVAILABLE } from './support.js';

/**
 * The real system, but it does not wait for the disk. If `isDenied`, it denies fsync, as the
 * permission model of Node does.
 */
const systemOf = (isDenied: boolean): System => ({
  ...nodeSystem,
  fsync: async () => {
    if (isDenied) throw systemError('ERR_ACCESS_DENIED', 'fsync');
  },
});

/**
 * Uses a log while an act happens, then closes the log. Resolves to the acknowledged plants, and to
 * whether the log was poisoned.
 */
async function useDuring(place: Place, act: Act, random: Random, system: System) {
  const log = await openLog(system, place.given, { report: ignore });
  const acknowledged = [...STORED];
  const adding: Promise<unknown>[] = [];
  const plants = manyPlants(6).map((plant) => ({ ...plant, id: plant.id + 100n }));
  const actAt = random.below(plants.length + 1);
  for (const [n, plant] of plants.entries()) {
    if (n === actAt) act(place);
    const added = log.add(random.chance(0.3) ? FERN : plant).then(
      (outcome) => outcome === 'created' && acknowledged.push(plant),
      () => undefined,
    );
    adding.push(added);
    if (random.chance(0.4)) await added;
    else if (random.chance(0.4)) await nextTurn();
  }
  if (actAt === plants.length) {
    if (random.chance(0.5)) await Promise.all(adding);
    act(place);
  }
  await log.close();
  await Promise.all(adding);
  return { acknowledged, isPoisoned: log.poisoned.aborted };
}

const ACTS = byLength(40, 150, 1_500);

for (let n = 0; n < ACTS; n++) {
  const random = createRandom(seed + n);
  const kind = random.pick(KINDS);
  const isDenied = random.chance(0.5);
  const isHarmful = random.chance(0.6);
  const [what, act] = random.pick(Object.entries(isHarmful ? harmfulTo(kind) : HARMLESS));
  const expected = isHarmful ? 'the log is marked' : 'nothing changes';
  const about = `others ${what} while the log is open by ${kind}${isDenied ? ', without fsync' : ''}: ${expected}`;
  t.test(`TEST_SEED=${seed + n}: ${about}`, async (t) => {
    const place = createPlace(t, kind);
    const { acknowledged, isPoisoned } = await useDuring(place, act, random, systemOf(isDenied));
    t.equal(isPoisoned, isHarmful);
    for (const path of new Set([place.given, place.real])) {
      if (isHarmful) {
        t.ok(existsSync(`${path}.modified`), `${path}.modified`);
        await t.rejects(openPlantLog(path), { ...UNAVAILABLE, message: /: the file was modified/ });
      } else {
        const log = await openPlantLog(path, { report: ignore });
        for (const plant of acknowledged) t.strictSame(await log.get(plant.id), plant);
        t.equal(log.size, acknowledged.length);
        await log.close();
        t.notOk(existsSync(`${path}.modified`));
      }
    }
  });
}

const isKnown = (flag: string): boolean => process.allowedNodeEnvironmentFlags.has(flag);
const PERMISSION_FLAGS = [
  isKnown('--permission') ? '--permission' : '--experimental-permission',
  ...['--allow-net'].filter(isKnown),
  ...['--allow-fs-read=*', '--allow-fs-write=*'],
];

// Each kind needs three processes of the program.
for (const [n, kind] of KINDS.slice(0, byLength(1, 3, 3)).entries()) {
  const random = createRandom(seed + n);
  const acts = kind === 'a path' ? HARMFUL : HARMFUL_TO_LINKS;
  const [what, act] = random.pick(Object.entries(acts));
  // The permission model denies fsync, from Node 24 on.
  const [flags, model] =
    kind === 'a link' ? [[], ''] : [PERMISSION_FLAGS, ', under the permission model'];
  t.test(`the program ends and starts no more if others ${what}: by ${kind}${model}`, async (t) => {
    const place = createPlace(t, kind);
    const command = [process.execPath, '--no-warnings', ...flags, SERVER];
    const program = await start(t, { command, env: settingsFor(place.given) });
    act(place);
    t.equal(await statusWith(t, program.port, TOKEN, inJson(MOSS)), 503);
    t.match(await program.ended, { code: FAILED });
    const startAgain = async (path: string): Promise<void> => {
      const { code, stderr } = await run(t, { command, env: settingsFor(path) });
      t.ok(code, path);
      t.match(stderr, /: the file was modified, replaced or removed while it was open;/);
    };
    await Promise.all([...new Set([place.given, place.real])].map(startAgain));
  });
}
