/*
 * The commands and the scripts for tokens and backups. test/postgres/drills.test.ts has those for
 * PostgreSQL.
 */
import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, resolve } from 'node:path';

import t, { type Test } from 'tap';

import { encodeRecord } from '../../dist/log/encode.js';
import { exchange, message, statusWith } from '../helpers/client.js';
import { block, blocks, shell } from '../helpers/documents.js';
import { FERN, IVY, MOSS } from '../helpers/plants.js';
import { FAILED, launch, start, untilServing } from '../helpers/program.js';

const [fern = '', ivy = '', moss = ''] = [FERN, IVY, MOSS].map(encodeRecord);

const dist = t.fixture('symlink', resolve('dist'));

/** A systemctl that prints its arguments. */
const SYSTEMCTL = '#!/bin/sh\necho "${0##*/} $*"\n';

/**
 * Writes a script into a folder with these files, which takes the place of /var and /opt. Returns
 * the folder, and a function that runs the script there.
 */
function prepare(t: Test, script: string, files: Parameters<Test['testdir']>[0]) {
  const cwd = t.testdir(files);
  const here = script.replaceAll(/\/(?:var|opt)(?=\/\w)/g, cwd);
  const file = join(cwd, 'script');
  writeFileSync(file, here.startsWith('#!') ? here : `#!/bin/sh\n${here}`, { mode: 0o755 });
  return { cwd, run: () => spawnSync(file, { cwd, encoding: 'utf8' }) };
}

t.test('an import adds the plants that were stored since the backup', (t) => {
  const files = {
    dist,
    data: { 'plants.jsonl': `${fern}${ivy}` },
    'plants.replaced.jsonl': `${fern}${ivy}${moss}`,
  };
  const { cwd, run } = prepare(t, block('The newest plants', 'sh'), files);
  const { status, stdout, stderr } = run();
  t.match(stdout, '\nplants.replaced.jsonl: 1 plant imported, 2 unchanged, 0 lines refused\n');
  t.strictSame([status, stderr], [0, '']);
  t.equal(readFileSync(join(cwd, 'data/plants.jsonl'), 'utf8'), `${fern}${ivy}${moss}`);
  t.end();
});

t.test('a backup is restored after the log of a running program was removed', async (t) => {
  const [, restore = ''] = blocks('Backup', 'sh');
  const cwd = t.testdir({ dist, data: { 'plants.jsonl': fern }, 'plants.backup.jsonl': fern });
  const log = join(cwd, 'data/plants.jsonl');
  const ended = await start(t, { cwd });
  rmSync(log);
  const { port, token } = ended;
  const headers = { Authorization: `Bearer ${token}` };
  t.equal((await exchange(t, port, message({ headers }))).status, 503);
  t.match(await ended.ended, { code: FAILED });
  t.ok(existsSync(`${log}.modified`));

  const commands = `${restore}echo "$PID" >&2; wait "$PID"`;
  const env = { PID: String(ended.pid) };
  const program = launch(t, { cwd, env, command: ['sh', '-uc', commands] });
  const [pid] = await program.says('stderr', /^\d+(?=\n)/m);
  t.teardown(() => process.kill(Number(pid)));
  await program.says('stdout', /^plants: 1$/m);
  t.notMatch(program.stderr, 'mv: ');
});

/** Runs `daily-backup.sh` for a log. The functions replace the log and read the two copies. */
function prepareDaily(t: Test, log: string) {
  const script = readFileSync('src/program/deploy/daily-backup.sh', 'utf8');
  const { cwd, run } = prepare(t, script, {
    backups: {},
    lib: { 'plant-store': { 'plants.jsonl': log } },
    'plant-store': { dist },
  });
  const backup = join(cwd, 'backups/plants.jsonl');
  return {
    run,
    replaceLog: (text: string) => writeFileSync(join(cwd, 'lib/plant-store/plants.jsonl'), text),
    moveAway: () => renameSync(backup, `${backup}.old`),
    copy: () => readFileSync(backup, 'utf8'),
    refused: () => readFileSync(`${backup}.new`, 'utf8'),
  };
}

t.test('root restores a backup of the log of a unit, and keeps the log that was replaced', (t) => {
  const state = { 'plants.jsonl': `${ivy}${moss}`, 'plants.jsonl.modified': 'modified' };
  const files = {
    bin: { systemctl: SYSTEMCTL },
    opt: { 'plant-store': { dist } },
    lib: { 'plant-store': state },
    backups: { 'plants.jsonl': fern, 'damaged.jsonl': `${fern}x\n` },
  };
  const cwd = t.testdir(files);
  chmodSync(join(cwd, 'bin/systemctl'), 0o755);
  const shipped = readFileSync('src/program/deploy/restore.sh', 'utf8');
  const script = shipped.replaceAll(/(?<=[= ])\/(?:var|opt)(?=\/\w)/g, (top) =>
    top === '/opt' ? join(cwd, 'opt') : cwd,
  );
  const PATH = `${join(cwd, 'bin')}:${dirname(process.execPath)}:${process.env.PATH}`;
  const restore = (backup: string) =>
    spawnSync('sh', ['-c', script, 'restore.sh', join(cwd, 'backups', backup)], {
      encoding: 'utf8',
      env: { PATH },
    });
  const folder = join(cwd, 'lib/plant-store');

  t.equal(restore('damaged.jsonl').status, 1);
  t.strictSame(readdirSync(folder), Object.keys(state), 'a damaged backup changes nothing');

  for (const log of [`${ivy}${moss}`, undefined]) {
    const { status, stdout } = restore('plants.jsonl');
    t.equal(status, 0);
    const both = 'plant-store.socket plant-store.service';
    t.strictSame(stdout.match(/^systemctl .*/gm), [
      `systemctl stop ${both}`,
      `systemctl start ${both}`,
    ]);
    t.notOk(existsSync(join(folder, 'plants.jsonl.modified')));
    t.equal(readFileSync(join(folder, 'plants.jsonl'), 'utf8'), fern);
    t.equal(statSync(join(folder, 'plants.jsonl')).mode & 0o777, 0o600);
    const [, replaced = ''] = /^(.*) is the log that was replaced$/m.exec(stdout) ?? [];
    t.equal(log && readFileSync(replaced, 'utf8'), log);
    // The second restore finds no log.
    rmSync(join(folder, 'plants.jsonl'));
  }

  const [, ...putToken] = Array.from(script.matchAll(/^# {3}(.*\n)/gm), ([, line]) => line);
  writeFileSync(join(cwd, 'token'), 'an-old-token');
  const { status } = spawnSync('sh', ['-euc', putToken.join('')], { cwd });
  t.equal(status, 0, 'the commands for a new machine');
  t.equal(readFileSync(join(folder, 'token'), 'utf8'), 'an-old-token');
  t.match(statSync(join(folder, 'token')), { mode: 0o100_600, uid: statSync(folder).uid });
  t.end();
});

t.test('the daily backup of a log that grows prints nothing', (t) => {
  const { run, replaceLog, copy } = prepareDaily(t, '');
  for (const log of [
    '',
    fern,
    fern,
    `${fern}${ivy.slice(0, 9)}`,
    `${fern}${ivy}${moss.slice(0, 9)}`,
    // A start has moved the partial last line to another file.
    `${fern}${ivy}`,
    `${fern}${ivy}${moss}`,
  ]) {
    replaceLog(log);
    const { status, stdout, stderr } = run();
    t.strictSame([status, stdout, stderr], [0, '', '']);
    t.equal(copy(), log);
  }
  t.end();
});

t.test('the daily backup prints damage, and keeps the last copy', (t) => {
  const { run, replaceLog, copy } = prepareDaily(t, `${fern}${ivy}`);
  t.equal(run().status, 0);
  replaceLog(`${fern}${ivy}damaged\n${moss}`);
  const { status, stdout } = run();
  t.equal(status, 1);
  t.match(stdout, /^line 3, byte \d+: .*\n.*: 3 plants, .* 1 damaged line\n$/);
  t.equal(copy(), `${fern}${ivy}`);
  t.end();
});

t.test('the daily backup keeps the last copy if the log has lost or changed lines', (t) => {
  for (const log of ['', fern, `${fern}${moss}`, `${ivy}${fern}`]) {
    const { run, replaceLog, moveAway, copy, refused } = prepareDaily(t, `${fern}${ivy}`);
    t.equal(run().status, 0);
    replaceLog(log);
    for (let night = 0; night < 2; night++) {
      const { status, stdout, stderr } = run();
      t.equal(status, 1);
      t.match(stdout, /^The log has lost or changed lines .*plants\.jsonl away/s);
      t.equal(stderr, '');
      t.strictSame([copy(), refused()], [`${fern}${ivy}`, log]);
    }
    moveAway();
    t.equal(run().status, 0, 'the operator has moved the copy away');
    t.equal(copy(), log);
  }
  t.end();
});

t.test('tokens rotate, and the log is copied, with the documented commands', async (t) => {
  const cwd = t.testdir({ dist });
  const [starting = '', operating = ''] = blocks('Tokens and certificates', 'sh');
  const script = `${starting}echo "$PID" >&2; wait "$PID"`;
  const program = await untilServing(launch(t, { cwd, command: ['sh', '-euc', script] }));
  const [PID = ''] = await program.says('stderr', /^\d+(?=\n)/);
  t.teardown(() => process.kill(Number(PID)));
  const file = join(cwd, 'data/token');
  // Some editors leave out the last newline.
  for (const end of ['\n', '']) {
    const old = readFileSync(file, 'utf8').trimEnd();
    writeFileSync(file, `${old}${end}`);
    await shell(operating, cwd, { PID });
    await program.says('stderr', /accepts 2 tokens\n$/);
    const [first, added = '', ...more] = readFileSync(file, 'utf8').split('\n');
    t.strictSame([first, more], [old, ['']]);
    t.equal(await statusWith(t, program.port, added), 200);
    // Without the old line, the first line is the new token.
    writeFileSync(file, `${added}\n`);
    process.kill(Number(PID), 'SIGHUP');
    await program.says('stderr', /accepts 1 token\n$/);
  }

  const [backup = ''] = blocks('Backup', 'sh');
  t.match(await shell(backup, cwd), 'backup.jsonl: 1 plant, ');
});
