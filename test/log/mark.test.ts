import {
  appendFileSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';

import t, { type Test } from 'tap';

import { MODIFIED } from '../../dist/log/errors.js';
import { openLog, openPlantLog, type PlantLog } from '../../dist/log/log.js';
import { readPlantLog, verifyLog } from '../../dist/log/read.js';
import { encodeRecord } from '../../dist/log/encode.js';
import { repairLog } from '../../dist/log/repair.js';
import { nodeSystem, type System } from '../../dist/log/system.js';
import { exactly } from '../helpers/exactly.js';
import { FERN, IVY, MOSS, REED } from '../helpers/plants.js';
import { collect } from '../helpers/stores.js';
import { hasty } from './lock-support.js';
import {
  createGate,
  failNext,
  filesIn,
  holdNext,
  ignore,
  isPending,
  LOCKED,
  logAt,
  logOf,
  openWithFaults,
  systemError,
  UNAVAILABLE,
} from './support.js';

const STORED = logOf([MOSS, IVY]);

/** Acts of another process on the file of an open log that lose plants. */
const LOSSES: Record<string, (path: string) => void> = {
  'truncated to nothing': (path) => truncateSync(path),
  'truncated by one byte': (path) => truncateSync(path, statSync(path).size - 1),
  removed: (path) => rmSync(path),
  renamed: (path) => renameSync(path, `${path}.old`),
  'replaced by a copy'(path) {
    renameSync(path, `${path}.old`);
    copyFileSync(`${path}.old`, path);
  },
  'replaced by a link'(path) {
    renameSync(path, `${path}.old`);
    symlinkSync('/dev/null', path);
  },
};

/** Acts that add to the file, and lose no plant. */
const ADDITIONS: typeof LOSSES = {
  extended: (path) => appendFileSync(path, encodeRecord(REED)),
  'extended by a NUL byte': (path) => truncateSync(path, statSync(path).size + 1),
};

const TEXT =
  'The log beside this file was modified, replaced or removed while it was open. Put it back if it was replaced, truncated or removed, verify it, and then remove this file.\n';

/** The message that names the steps before a marked log is opened again. */
const marked = (path: string): string =>
  `${path}: the file was modified, replaced or removed while it was open; put it back if it was replaced, truncated or removed, check it with the command "verify", and then remove ${path}.modified`;

/** The calls that notice a change. */
const NOTICES: Record<string, (log: PlantLog) => Promise<unknown>> = {
  'a plant is added': (log) => log.add(REED),
  'a stored plant is added again': (log) => log.add(MOSS),
  'it is closed': (log) => log.close(),
};

for (const [what, change] of Object.entries({ ...LOSSES, ...ADDITIONS }))
  for (const [when, notice] of Object.entries(NOTICES))
    t.test(`a log that was ${what} while open is marked when ${when}`, async (t) => {
      const { fs, log, path, reports } = await openWithFaults(t, {}, { content: STORED });
      change(path);
      const left = { ...filesIn(dirname(path)), 'plants.jsonl.modified': TEXT };
      const noticed = await notice(log).catch((error: unknown) => error);
      if (noticed === 'unchanged' && what in ADDITIONS) {
        t.notOk(log.poisoned.aborted, 'the stored plant is there');
        return;
      }
      t.match(log.poisoned.reason, { ...UNAVAILABLE, cause: { code: MODIFIED } });
      if (noticed) t.equal(noticed, log.poisoned.reason);
      for (const plant of [FERN, MOSS]) await t.rejects(log.add(plant), UNAVAILABLE);
      t.match(reports, exactly(/: the (?:file|line at byte 0) was modified/));
      await log.close();
      t.equal(fs.openFiles, 0);
      await t.rejects(openPlantLog(path), { ...UNAVAILABLE, message: marked(path) });
      t.strictSame(filesIn(dirname(path)), left, 'nothing else was written');
    });

t.test('a log that was replaced by a link to itself is marked', async (t) => {
  const { log, path } = await openWithFaults(t, {}, { content: STORED });
  renameSync(path, `${path}.old`);
  symlinkSync(path, path);
  await t.rejects(log.add(REED), { ...UNAVAILABLE, cause: { code: MODIFIED } });
  await log.close();
  await t.rejects(openPlantLog(path), { ...UNAVAILABLE, message: marked(path) });
});

t.test('a marked log can be verified, repaired and read, but not opened', async (t) => {
  const path = logAt(t, `x\n${STORED.toString('latin1')}`);
  writeFileSync(`${path}.modified`, '');
  await t.rejects(openPlantLog(path), { ...UNAVAILABLE, message: marked(path) });
  for await (const { damaged } of verifyLog(nodeSystem, path)) t.equal(damaged.length, 1);
  t.match(await repairLog(nodeSystem, path), { plants: 2, removed: 1 });
  t.strictSame(await collect(readPlantLog(path)), [MOSS, IVY]);
  await t.rejects(openPlantLog(path), { ...UNAVAILABLE, message: marked(path) });
  rmSync(`${path}.modified`);
  const log = await openPlantLog(path);
  t.equal(log.size, 2);
  await log.close();
});

/** A log that is named through a symbolic link. `other` is another log, which has no plants. */
interface LinkedLog {
  readonly given: string;
  readonly real: string;
  readonly link: string;
  readonly other: string;
}

/** How a log is named through a link: the link is its file, or its folder. */
const LINKS = {
  file(t) {
    const folder = t.testdir({
      data: {},
      real: { 'plants.jsonl': STORED },
      other: { 'plants.jsonl': '' },
    });
    const link = join(folder, 'data', 'plants.jsonl');
    const [real, other] = [join(folder, 'real'), join(folder, 'other')].map((parent) =>
      join(parent, 'plants.jsonl'),
    ) as [string, string];
    symlinkSync(real, link);
    return { given: link, real, link, other };
  },
  folder(t) {
    const folder = t.testdir({ real: { 'plants.jsonl': STORED }, other: { 'plants.jsonl': '' } });
    const link = join(folder, 'link');
    symlinkSync('real', link);
    return {
      given: join(link, 'plants.jsonl'),
      real: join(folder, 'real', 'plants.jsonl'),
      link,
      other: join(folder, 'other', 'plants.jsonl'),
    };
  },
} satisfies Record<string, (t: Test) => LinkedLog>;

/** What may happen to a log that is named through a link, and to the link. */
const LINK_LOSSES: Record<string, (log: LinkedLog) => void> = {
  'its link was removed': ({ link }) => rmSync(link),
  'its link was replaced by an empty log'({ given, link }) {
    rmSync(link);
    mkdirSync(dirname(given), { recursive: true });
    writeFileSync(given, '');
  },
  'its link leads to another log'({ given, link, other }) {
    rmSync(link);
    symlinkSync(given === link ? other : dirname(other), link);
  },
  'its file was replaced'({ real }) {
    rmSync(real);
    writeFileSync(real, '');
  },
  'its folder was renamed': ({ real }) => renameSync(dirname(real), `${dirname(real)}.old`),
};

for (const [where, create] of Object.entries(LINKS))
  for (const [what, change] of Object.entries(LINK_LOSSES))
    for (const [when, notice] of Object.entries(NOTICES))
      t.test(`a log whose ${where} is a link is marked if ${what}, when ${when}`, async (t) => {
        const linked = create(t);
        const reports: string[] = [];
        const log = await openPlantLog(linked.given, {
          report: (message) => reports.push(message),
        });
        t.equal(log.path, linked.real);
        change(linked);
        await notice(log).catch((error: unknown) => error);
        await log.close();
        t.ok(log.poisoned.aborted);
        t.match(reports, exactly(/: the file was modified/));
        for (const path of [linked.given, linked.real])
          await t.rejects(openPlantLog(path), { ...UNAVAILABLE, message: marked(path) });
      });

t.test('a log that is named through a link is not marked if nothing was lost', async (t) => {
  for (const create of Object.values(LINKS)) {
    const { given, real } = create(t);
    const log = await openPlantLog(given);
    t.equal(await log.add(FERN), 'created');
    t.equal(await log.add(FERN), 'unchanged');
    await log.close();
    t.notOk(log.poisoned.aborted);
    t.strictSame(Object.keys(filesIn(dirname(real))), ['plants.jsonl']);
  }
});

/** What may happen to the folder of a log. */
const FOLDER_LOSSES: Record<string, (folder: string) => void> = {
  renamed: (folder) => renameSync(folder, `${folder}.old`),
  removed: (folder) => rmSync(folder, { recursive: true }),
  'replaced by an empty one'(folder) {
    renameSync(folder, `${folder}.old`);
    mkdirSync(folder);
  },
};

for (const [what, change] of Object.entries(FOLDER_LOSSES))
  for (const [when, notice] of Object.entries(NOTICES))
    t.test(`a log whose folder was ${what} is marked when ${when}`, async (t) => {
      const folder = join(t.testdir({ data: { 'plants.jsonl': STORED } }), 'data');
      const path = join(folder, 'plants.jsonl');
      const log = await openPlantLog(path, { report: ignore });
      change(folder);
      await notice(log).catch((error: unknown) => error);
      await log.close();
      t.strictSame(readdirSync(folder), ['plants.jsonl.modified']);
      await t.rejects(openPlantLog(path), { ...UNAVAILABLE, message: marked(path) });
    });

t.test('a process that waits for a lock finds the mark that its holder leaves', async (t) => {
  const holder = await openPlantLog(logAt(t, STORED), { report: ignore });
  const system: System = {
    ...nodeSystem,
    async sleep() {
      truncateSync(holder.path);
      await holder.close();
    },
  };
  await t.rejects(openLog(system, holder.path), { ...UNAVAILABLE, message: marked(holder.path) });
});

t.test('a process that waits for a lock finds the mark beside either path of a link', async (t) => {
  for (const where of ['given', 'real'] as const) {
    const linked = LINKS.file(t);
    const holder = await openPlantLog(linked.given, { report: ignore });
    const system: System = {
      ...nodeSystem,
      async sleep() {
        writeFileSync(`${linked[where]}.modified`, '');
        await holder.close();
      },
    };
    const message = marked(linked[where]);
    await t.rejects(openLog(system, linked.given), { ...UNAVAILABLE, message }, where);
  }
});

t.test('if the mark beside one path of a link cannot be written, the other mark is', async (t) => {
  for (const where of ['given', 'real'] as const) {
    const linked = LINKS.file(t);
    const system: System = {
      ...nodeSystem,
      async open(path, flags, mode) {
        if (path === `${linked[where]}.modified`) throw systemError('EACCES', 'open');
        return nodeSystem.open(path, flags, mode);
      },
    };
    const log = await openLog(system, linked.given, { report: ignore });
    truncateSync(linked.real);
    await log.close();
    const left = (['given', 'real'] as const).filter((each) =>
      existsSync(`${linked[each]}.modified`),
    );
    t.strictSame(left, where === 'given' ? ['real'] : ['given']);
  }
});

/** The real system, but the next attempts to open a mark fail with these codes. */
function failingMarks(...codes: string[]): { system: System; reached: Promise<void> } {
  const gate = createGate();
  gate.open();
  const system: System = {
    ...nodeSystem,
    async open(path, flags, mode) {
      if (!path.endsWith('.modified')) return nodeSystem.open(path, flags, mode);
      await gate.pass();
      const code = codes.shift();
      if (code !== undefined) throw systemError(code, 'open');
      return nodeSystem.open(path, flags, mode);
    },
  };
  return { system, reached: gate.reached };
}

const NO_MARK = 'without this file, nothing keeps the log from being opened again';

t.test(
  'a mark that cannot be written is reported, and tried again when the log is closed',
  async (t) => {
    for (const [codes, isLeft] of [
      [['EMFILE'], true],
      [['EMFILE', 'ENOSPC'], false],
    ] as const) {
      const path = logAt(t, STORED);
      const reports: string[] = [];
      const { system, reached } = failingMarks(...codes);
      const log = await openLog(system, path, { report: (message) => reports.push(message) });
      truncateSync(path);
      await t.rejects(log.add(FERN), UNAVAILABLE);
      await reached;
      await log.close();
      t.equal(existsSync(`${path}.modified`), isLeft);
      const [first, second] = [
        `${path}.modified: too many open files (EMFILE); ${NO_MARK}`,
        `${path}.modified: no space left on device (ENOSPC); ${NO_MARK}`,
      ];
      t.match(reports, exactly(/: the file was modified/, first, ...(isLeft ? [] : [second])));
    }
  },
);

t.test('a mark works even if the disk is too full for its text', async (t) => {
  const { fs, log, path } = await openWithFaults(t, {}, { content: STORED });
  truncateSync(path);
  failNext(fs, 'write', { fails: 'ENOSPC' });
  await t.rejects(log.add(FERN), UNAVAILABLE);
  await log.close();
  await t.rejects(openPlantLog(path), { ...UNAVAILABLE, message: marked(path) });
});

t.test('the folder of a mark is synced after it, so that it survives a power cut', async (t) => {
  const { fs, log, path } = await openWithFaults(t, {}, { content: STORED });
  truncateSync(path);
  const { length } = fs.operations;
  await t.rejects(log.add(FERN), UNAVAILABLE);
  await log.close();
  const operations = fs.operations.slice(length);
  t.ok(operations.includes('write'));
  t.ok(operations.lastIndexOf('fsync') > operations.lastIndexOf('write'));
});

t.test(
  'a log is marked if a file or a circle of links replaces its folder or the log',
  async (t) => {
    const acts: Record<string, (folder: string, file: string) => void> = {
      'a file in place of the folder': (folder) => writeFileSync(folder, ''),
      'a link to itself in place of the folder': (folder) => symlinkSync(basename(folder), folder),
      'a link to itself in place of the log': (folder, file) => {
        mkdirSync(folder);
        symlinkSync(file, join(folder, file));
      },
    };
    for (const [what, act] of Object.entries(acts)) {
      const { log, path, reports } = await openWithFaults(t, {}, { content: STORED });
      const folder = dirname(path);
      renameSync(folder, `${folder}.old`);
      act(folder, basename(path));
      await t.rejects(log.add(FERN), UNAVAILABLE, what);
      // The log tries to write the mark again when it is closed. By then, nothing is in the way.
      rmSync(folder, { recursive: true });
      await log.close();
      t.ok(existsSync(`${path}.modified`), what);
      t.match(reports[0], /modified/, what);
      rmSync(folder, { recursive: true });
      renameSync(`${folder}.old`, folder);
    }
  },
);

t.test('a mark is not written through a link', async (t) => {
  const { log, path, reports } = await openWithFaults(t, {}, { content: STORED });
  writeFileSync(`${path}.other`, 'kept');
  truncateSync(path);
  symlinkSync(`${path}.other`, `${path}.modified`);
  await log.close();
  t.equal(readFileSync(`${path}.other`, 'utf8'), 'kept');
  t.match(reports, exactly(/: the file was modified/, / \(ELOOP\); /, / \(ELOOP\); /));
  await t.rejects(openPlantLog(path), { ...UNAVAILABLE, message: marked(path) });
});

t.test('closing a modified log waits until the log is marked', async (t) => {
  const { fs, log, path } = await openWithFaults(t, {}, { content: STORED });
  truncateSync(path);
  const gate = holdNext(fs, 'mkdir');
  await t.rejects(log.add(FERN), UNAVAILABLE);
  const closing = log.close();
  await gate.reached;
  t.ok(await isPending(closing));
  await t.rejects(openLog(hasty(), path), LOCKED);
  gate.open();
  await closing;
  t.ok(existsSync(`${path}.modified`));
});
