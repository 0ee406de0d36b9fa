/*
 * Acts of other processes on an open log, at random times. The first one has the seed of the run, the
 * next one the next number, and so on: a run with TEST_SEED set to the seed of a failure begins with it.
 */
import {
  appendFileSync,
  chmodSync,
  copyFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';

import t, { type Test } from 'tap';

import { openLog, openPlantLog } from '../../dist/log/log.js';
import { nodeSystem, type System } from '../../dist/log/system.js';
import { createRandom, type Random } from '../crash-states/random.js';
import { seed } from '../helpers/effort.js';
import { FERN, IVY, manyPlants } from '../helpers/plants.js';
import { ignore, logOf, systemError, UNAVAILABLE } from './support.js';

/** A log, and what leads to it. */
interface Place {
  /** The path by which it is opened. */
  readonly given: string;
  readonly real: string;
  /** A symbolic link on the given path. */
  readonly link?: string;
  /** Another log, without plants. */
  readonly other: string;
}

const STORED = [FERN, IVY];

function createPlace(t: Test, kind: 'a path' | 'a link' | 'a link to its folder'): Place {
  const root = t.testdir({
    real: { 'plants.jsonl': logOf(STORED) },
    links: {},
    other: { 'plants.jsonl': '' },
  });
  const [real, other] = [join(root, 'real', 'plants.jsonl'), join(root, 'other', 'plants.jsonl')];
  if (kind === 'a path') return { given: real, real, other };
  const isFile = kind === 'a link';
  const link = join(root, 'links', 'link');
  symlinkSync(isFile ? real : dirname(real), link);
  return { given: isFile ? link : join(link, 'plants.jsonl'), real, other, link };
}

type Act = (place: Place) => void;

/** Replaces what a path leads to by a file with this content, as `sed -i` and editors do. */
function replace(path: string, content: string | Buffer): void {
  writeFileSync(`${path}.new`, content);
  renameSync(`${path}.new`, path);
}

const HARMFUL: Record<string, Act> = {
  'empty the file': ({ real }) => truncateSync(real),
  'cut off its last byte': ({ real }) => truncateSync(real, statSync(real).size - 1),
  'append a byte': ({ real }) => appendFileSync(real, '\n'),
  'append a byte through the given path': ({ given }) => appendFileSync(given, '\n'),
  'remove the file': ({ real }) => rmSync(real),
  'remove what has the given path': ({ given }) => rmSync(given),
  'rename the file': ({ real }) => renameSync(real, `${real}.1`),
  'rotate the file'({ real }) {
    renameSync(real, `${real}.1`);
    writeFileSync(real, '');
  },
  'replace the file by a copy': ({ real }) => replace(real, readFileSync(real)),
  'replace the given path by a copy': ({ given }) => replace(given, readFileSync(given)),
  'replace the given path by an empty file': ({ given }) => replace(given, ''),
  'rename its folder': ({ real }) => renameSync(dirname(real), `${dirname(real)}.old`),
  'remove its folder': ({ real }) => rmSync(dirname(real), { recursive: true }),
  'replace its folder by an empty one'({ real }) {
    renameSync(dirname(real), `${dirname(real)}.old`);
    mkdirSync(dirname(real));
  },
};

/** What can only be done to a link. */
const HARMFUL_TO_LINKS: Record<string, Act> = {
  'remove the link': ({ link = '' }) => rmSync(link),
  'let the link lead to another log'({ given, link = '', other }) {
    rmSync(link);
    symlinkSync(given === link ? other : dirname(other), link);
  },
};

const HARMLESS: Record<string, Act> = {
  'change its times': ({ real }) => utimesSync(real, 0, 0),
  'change its mode': ({ given }) => chmodSync(given, 0o640),
  'read it': ({ given }) => readFileSync(given),
  'link it in another folder': ({ real }) => linkSync(real, join(dirname(real), '..', 'hard')),
  'link it in its folder': ({ real }) => linkSync(real, `${real}.hard`),
  'link to it': ({ real }) => symlinkSync(real, `${real}.link`),
  'copy it': ({ real }) => copyFileSync(real, `${real}.copy`),
  'create a file beside it': ({ real }) => writeFileSync(`${real}.other`, ''),
  'rename it and back'({ real }) {
    renameSync(real, `${real}.1`);
    renameSync(`${real}.1`, real);
  },
  'rename its folder and back'({ real }) {
    renameSync(dirname(real), `${dirname(real)}.old`);
    renameSync(`${dirname(real)}.old`, dirname(real));
  },
  'let a link to it lead there by another way'({ given, real, link }) {
    if (link === undefined) return;
    rmSync(link);
    symlinkSync(join('..', 'real', given === link ? 'plants.jsonl' : ''), link);
    statSync(real);
  },
};

/** The real system, without waiting for the disk; under the permission model, fsync is denied. */
const systemOf = (isDenied: boolean): System => ({
  ...nodeSystem,
  fsync: async () => {
    if (isDenied) throw systemError('ERR_ACCESS_DENIED', 'fsync');
  },
});

/** Uses a log while an act happens, then closes it. Resolves to the plants that were acknowledged. */
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

const KINDS = ['a path', 'a link', 'a link to its folder'] as const;
const ACTS = 150;

for (let n = 0; n < ACTS; n++) {
  const random = createRandom(seed + n);
  const kind = random.pick(KINDS);
  const isDenied = random.chance(0.5);
  const isHarmful = random.chance(0.6);
  const harmful = kind === 'a path' ? HARMFUL : { ...HARMFUL, ...HARMFUL_TO_LINKS };
  const [what, act] = random.pick(Object.entries(isHarmful ? harmful : HARMLESS));
  const expected = isHarmful ? 'marks it' : 'changes nothing';
  const about = `${what}, while it is open by ${kind}${isDenied ? ', without fsync' : ''}: ${expected}`;
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
