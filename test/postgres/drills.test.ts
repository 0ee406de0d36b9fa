/* Types the documented commands for backup, restoring and moving into a shell, as operators do. */
import { spawn, spawnSync } from 'node:child_process';
import { chmodSync, existsSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';

import t from 'tap';

import { encodeRecord } from '../../dist/log/encode.js';
import { exchange, message, TOKEN } from '../helpers/client.js';
import { blocks } from '../helpers/documents.js';
import { FERN, inJson } from '../helpers/plants.js';
import { follow } from '../helpers/program.js';
import { missingForServers, startCluster } from './cluster.js';

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
  'with the script, root moves the plants of the unit to PostgreSQL',
  { skip: missingForServers() },
  async (t) => {
    const cluster = await startCluster(t);
    const print = '#!/bin/sh\necho "${0##*/} $*"\n';
    const dist = t.fixture('symlink', resolve('dist'));
    const src = t.fixture('symlink', resolve('src'));
    const folder = t.testdir({
      bin: { systemctl: print },
      etc: { 'plant-store': { password: 'a-secret' }, 'cron.daily': { 'plant-store': '' } },
      opt: { 'plant-store': { dist, src } },
      var: { lib: { 'plant-store': { token: TOKEN, 'plants.jsonl': encodeRecord(FERN) } } },
    });
    chmodSync(join(folder, 'bin/systemctl'), 0o755);
    const script = readFileSync(`${SHIPPED}/move-to-postgres.sh`, 'utf8');
    const here = script.replaceAll(/(?<=[=" ])\/(?=(?:etc|opt|var)\/)/g, `${folder}/`);
    const PATH = `${join(folder, 'bin')}:${dirname(process.execPath)}:${process.env.PATH}`;
    const env = { PATH, PLANT_STORE_FILE: 'another.jsonl' };
    const move = (url: string) =>
      spawnSync('sh', ['-c', here, 'move-to-postgres.sh', url], { encoding: 'utf8', env });
    const extension = join(folder, 'etc/systemd/system/plant-store.service.d/postgres.conf');

    const both = 'plant-store.socket plant-store.service';
    const failed = move('postgres://plants@127.0.0.1:1/plants');
    t.equal(failed.status, 1);
    t.equal(failed.stdout, '', 'the service goes on');
    t.notOk(existsSync(extension));

    const url = `${cluster.url}?sslmode=disable&application_name=a%20%5C%26name`;
    const { status, stdout } = move(url);
    t.equal(status, 0);
    t.match(stdout, ': 1 plant imported, 0 unchanged, 0 lines refused\nsystemctl stop ');
    t.match(stdout, 'plants.jsonl: 0 plants imported, 1 unchanged, 0 lines refused\n');
    t.strictSame(stdout.match(/(?<=^systemctl ).*/gm), [
      `stop ${both}`,
      'daemon-reload',
      `start ${both}`,
    ]);
    const shipped = readFileSync(`${SHIPPED}/plant-store.service.d/postgres.conf`, 'utf8');
    // systemd replaces %% by %.
    const inUnit = url.replaceAll('%', '%%');
    t.equal(
      readFileSync(extension, 'utf8'),
      shipped.replace('postgres://plants@db1,db2/plants', () => inUnit),
    );
    t.equal(readFileSync(join(folder, 'etc/plant-store/tokens'), 'utf8'), TOKEN);
    t.notOk(existsSync(join(folder, 'etc/cron.daily/plant-store')));
    t.strictSame(
      (await cluster.sql('SELECT id::text FROM plants')).map(({ id }) => id),
      [String(FERN.id)],
    );
  },
);
