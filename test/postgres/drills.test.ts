/* Types the documented commands for backup, restoring and moving into a shell, as operators do. */
import { spawn, spawnSync } from 'node:child_process';
import {
  chownSync,
  existsSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, resolve } from 'node:path';

import t from 'tap';

import { encodeRecord } from '../../dist/log/encode.js';
import { exchange, message, TOKEN } from '../helpers/client.js';
import { blocks } from '../helpers/documents.js';
import { exactly } from '../helpers/exactly.js';
import { FERN, inJson, IVY, MOSS } from '../helpers/plants.js';
import { follow } from '../helpers/program.js';
import { missingForServers, startCluster, USER } from './cluster.js';

const SHIPPED = 'src/program/deploy';

t.test(
  'a copy is restored, and plants move to PostgreSQL and back',
  { skip: missingForServers() },
  async (t) => {
    const cluster = await startCluster(t);
    const [start = ''] = blocks('Tokens and certificates', 'sh');
    const [backup = '', restore = ''] = blocks('Backup', 'sh');
    const [toPostgres = '', back = ''] = blocks('Moving to PostgreSQL, and back', 'sh');

    const cwd = t.testdir({ dist: t.fixture('symlink', resolve('dist')), password: 'a-secret' });
    const env = { ...process.env, PLANT_STORE_PORT: '0' };
    const child = spawn('sh', ['-u'], { cwd, env, stdio: 'pipe', detached: true });
    const shell = follow(t, child);
    // Kills the programs that the shell has started.
    t.teardown(() => {
      if (child.exitCode === null) process.kill(-Number(child.pid), 'SIGKILL');
    });
    const type = (commands: string): unknown => child.stdin.write(commands);

    /**
     * Resolves once programs have started to serve this many times, to what the latest program has
     * printed.
     */
    async function serves(times: number): Promise<string> {
      const printed = new RegExp(`(?:[^]*?^token: .*\\n){${times}}`, 'm');
      const [text] = await shell.says('stdout', printed);
      return text.slice(text.lastIndexOf('plant-store listening'));
    }

    /** Stores a plant in the program that has printed `lines`. Resolves to the status. */
    async function post(lines: string, id: bigint): Promise<number> {
      const [, port] = / on .*:(\d+)\n/.exec(lines) ?? [];
      const Authorization = `Bearer ${readFileSync(join(cwd, 'data/token'), 'utf8').trim()}`;
      const body = inJson({ ...FERN, id });
      return (await exchange(t, Number(port), message({ headers: { Authorization }, body })))
        .status;
    }

    type(start);
    const first = await serves(1);
    for (const id of [1n, 2n]) t.equal(await post(first, id), 200);
    type(backup);
    await shell.says('stdout', /backup\.jsonl: 2 plants, .*, 0 damaged lines\n/);
    t.equal(await post(first, 3n), 200);

    type(restore);
    const restored = await serves(2);
    t.match(restored, '\nplants: 2\n');
    t.match(readFileSync(join(cwd, 'plants.replaced.jsonl'), 'utf8'), '{"id":3,');

    type(toPostgres.replace(/postgres:\S+/, 'postgres://plants@127.0.0.1:1/plants'));
    await shell.says('stderr', /PLANT_STORE_DATABASE_URL: .*ECONNREFUSED/);
    t.equal(await post(restored, 3n), 200, 'the log is still served');
    // A plant that is stored after the first import is added by the second one.
    const [copy = '', move = ''] = toPostgres
      .replace(/postgres:\S+/, cluster.url)
      .split(/&&\n(?= +kill)/);
    type(`${copy}\n`);
    await shell.says('stdout', /-: 3 plants imported, /);
    t.equal(await post(restored, 4n), 200);
    type(move);
    const moved = await serves(3);
    t.match(shell.stdout, /plants\.jsonl: 1 plant imported, 3 unchanged, /);
    t.equal(await post(moved, 5n), 200);

    type(back);
    const last = await serves(4);
    t.match(last, '/data/moved.jsonl\nplants: 5\n');
    t.equal(await post(last, 6n), 200);
    type('kill "$PID" && wait "$PID" && exit\n');
    t.strictSame(await shell.ended, { code: 0, signal: null });
  },
);

t.test(
  'with the scripts, root moves the plants of the unit to PostgreSQL and back',
  { skip: missingForServers() },
  async (t) => {
    const cluster = await startCluster(t);
    const dist = t.fixture('symlink', resolve('dist'));
    const src = t.fixture('symlink', resolve('src'));
    const folder = t.testdir({
      bin: {},
      etc: { 'plant-store': { password: 'a-secret' }, 'cron.daily': { 'plant-store': '' } },
      opt: { 'plant-store': { dist, src } },
      var: {
        backups: { 'plants.jsonl': encodeRecord(FERN) },
        lib: { 'plant-store': { token: TOKEN, 'plants.jsonl': encodeRecord(FERN) } },
      },
      'late.jsonl': inJson(MOSS),
    });
    const [extension, cron, tokens, state, backups] = [
      'etc/systemd/system/plant-store.service.d/postgres.conf',
      'etc/cron.daily/plant-store',
      'etc/plant-store/tokens',
      'var/lib/plant-store',
      'var/backups',
    ].map((path) => join(folder, path)) as [string, string, string, string, string];
    const log = join(state, 'plants.jsonl');
    const PATH = `${join(folder, 'bin')}:${dirname(process.execPath)}:${process.env.PATH}`;
    const env = { PATH, PLANT_STORE_FILE: 'another.jsonl' };
    /** Runs a script in a folder that takes the place of /. */
    function run(name: string, ...args: readonly string[]) {
      const script = readFileSync(`${SHIPPED}/${name}`, 'utf8');
      const here = script.replaceAll(/(?<=[=" ])\/(?=(?:etc|opt|var)\/)/g, `${folder}/`);
      return spawnSync('sh', ['-c', here, name, ...args], { encoding: 'utf8', env });
    }
    /** Lets `systemctl` print its arguments. When it stops the service, it runs a command. */
    function onStop(command: string): void {
      const print = '#!/bin/sh\necho "${0##*/} $*"\n';
      const file = join(folder, 'bin/systemctl');
      writeFileSync(file, `${print}[ "$1" != stop ] || ${command}\n`, { mode: 0o755 });
    }
    onStop('true');
    if (USER) chownSync(state, USER.uid, USER.gid);
    const both = 'plant-store.socket plant-store.service';
    const restart = [`stop ${both}`, 'daemon-reload', `start ${both}`];
    const systemctlIn = (stdout: string) => stdout.match(/(?<=^systemctl ).*/gm);

    const unreachable = 'postgres://plants@127.0.0.1:1/plants';
    const failed = run('move-to-postgres.sh', unreachable);
    t.equal(failed.status, 1);
    t.equal(failed.stdout, '', 'the service goes on');
    t.notOk(existsSync(extension));

    const url = `${cluster.url}?sslmode=disable&application_name=a%20%5C%26name`;
    const moved = run('move-to-postgres.sh', url);
    t.equal(moved.status, 0);
    t.match(moved.stdout, ': 1 plant imported, 0 unchanged, 0 lines refused\nsystemctl stop ');
    t.match(moved.stdout, 'plants.jsonl: 0 plants imported, 1 unchanged, 0 lines refused\n');
    t.strictSame(systemctlIn(moved.stdout), restart);
    const shipped = readFileSync(`${SHIPPED}/plant-store.service.d/postgres.conf`, 'utf8');
    // systemd replaces %% by %.
    const inUnit = url.replaceAll('%', '%%');
    t.equal(
      readFileSync(extension, 'utf8'),
      shipped.replace('postgres://plants@db1,db2/plants', () => inUnit),
    );
    t.equal(readFileSync(tokens, 'utf8'), TOKEN);
    t.notOk(existsSync(cron));
    t.strictSame(
      (await cluster.sql('SELECT id::text FROM plants')).map(({ id }) => id),
      [String(FERN.id)],
    );

    // Since then, the token was replaced and a plant was added.
    writeFileSync(tokens, 'a-newer-token');
    await cluster.sql(`INSERT INTO plants (id, name) VALUES (${IVY.id}, '${IVY.name}')`);
    writeFileSync(`${log}.modified`, '');
    writeFileSync(extension, shipped.replace('postgres://plants@db1,db2/plants', unreachable));
    const refused = run('move-to-log.sh');
    t.equal(refused.status, 1);
    t.equal(refused.stdout, '', 'the service goes on');
    t.equal(readFileSync(log, 'utf8'), encodeRecord(FERN));
    t.equal(statSync(join(state, 'exported.jsonl')).mode & 0o777, 0o600);

    writeFileSync(
      extension,
      shipped.replace('postgres://plants@db1,db2/plants', () => inUnit),
    );
    // The service still stores a plant before it stops.
    const settings =
      'env -u PLANT_STORE_FILE PLANT_STORE_DATABASE_PASSWORD_FILE=' +
      `'${join(folder, 'etc/plant-store/password')}' PLANT_STORE_DATABASE_URL='${url}'`;
    onStop(`${settings} node dist/server.js import '${join(folder, 'late.jsonl')}' >&2`);
    const back = run('move-to-log.sh');
    t.equal(back.status, 0, back.stderr);
    t.strictSame(systemctlIn(back.stdout), restart);
    t.strictSame(
      readFileSync(log, 'utf8').match(/.*\n/g)?.toSorted(),
      [FERN, IVY, MOSS].map(encodeRecord).toSorted(),
    );
    t.equal(readFileSync(join(state, 'token'), 'utf8'), 'a-newer-token');
    for (const name of ['plants.jsonl', 'token'])
      t.match(statSync(join(state, name)), { mode: 0o100_600, uid: statSync(state).uid }, name);
    t.strictSame(
      readdirSync(state).map((name) => name.replace(/\d{10,}/, 'time')),
      ['plants.jsonl', 'plants.replaced-time.jsonl', 'token'],
    );
    t.match(readdirSync(backups), exactly(/^plants\.jsonl\.replaced-\d+$/));
    t.notOk(existsSync(extension));
    t.notOk(existsSync(tokens), 'the next move takes the tokens of that time');
    t.equal(readFileSync(cron, 'utf8'), readFileSync(`${SHIPPED}/daily-backup.sh`, 'utf8'));
    t.equal(statSync(cron).mode & 0o777, 0o755);

    // A service that has never had a log has no folder for it.
    rmSync(state, { recursive: true });
    writeFileSync(tokens, TOKEN);
    writeFileSync(
      extension,
      shipped.replace('postgres://plants@db1,db2/plants', () => inUnit),
    );
    t.equal(run('move-to-log.sh').status, 0);
    t.equal(readFileSync(log, 'utf8').match(/\n/g)?.length, 3);
  },
);
