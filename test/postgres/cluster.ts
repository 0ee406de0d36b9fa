import { execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  appendFileSync,
  chmodSync,
  chownSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { rename } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import pg from 'pg';
import type { Test } from 'tap';

import { freePort } from '../helpers/service.js';

const execute = promisify(execFile);

/** The folder in which Debian installs the commands that are not in the `PATH`. */
const DEBIAN = '/usr/lib/postgresql';
const RELEASES = existsSync(DEBIAN)
  ? readdirSync(DEBIAN).toSorted((a, b) => Number(b) - Number(a))
  : [];
const PATH = [
  // The folder with `initdb`, `pg_ctl` and `postgres` of another release.
  ...(process.env.TEST_POSTGRES_BIN ? [process.env.TEST_POSTGRES_BIN] : []),
  ...RELEASES.map((release) => join(DEBIAN, release, 'bin')),
  ...(process.env.PATH ?? '').split(delimiter),
  '/usr/sbin',
];

/** The path of a command, if it is installed. */
export function find(command: string): string | undefined {
  return PATH.map((folder) => join(folder, command)).find((path) => existsSync(path));
}

const isRoot = process.getuid?.() === 0;

function idOfPostgres(option: string): number {
  return Number(spawnSync('id', [option, 'postgres'], { encoding: 'utf8' }).stdout);
}

/**
 * The user that runs the servers if this process runs as root, as which PostgreSQL refuses to run.
 */
export const USER = isRoot ? { uid: idOfPostgres('-u'), gid: idOfPostgres('-g') } : undefined;

/** Why tests with these commands cannot run on this machine, or `false`. */
export function missingForServers(...commands: readonly string[]): string | false {
  const absent = ['initdb', 'pg_ctl', ...commands].filter((command) => !find(command));
  if (absent.length > 0) return `not installed: ${absent.join(', ')}`;
  return USER?.uid === 0 && 'there is no user postgres to run the servers as';
}

/** Runs a command as the user of the servers. Rejects with its output if it fails. */
async function runAsServer(command: string, ...args: readonly string[]): Promise<string> {
  const { stdout } = await execute(find(command) ?? command, args, {
    ...USER,
    cwd: '/',
    env: { LC_ALL: 'C' },
  });
  return stdout;
}

/** A new folder that belongs to the user of the servers. */
export function serverFolder(t: Test): string {
  const folder = mkdtempSync(join(tmpdir(), 'plant-store-pg-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  chmodSync(folder, 0o755);
  if (USER) chownSync(folder, USER.uid, USER.gid);
  return folder;
}

/** A PostgreSQL server that a test has started, on loopback and on a socket in its folder. */
export type Cluster = Awaited<ReturnType<typeof serve>>;

/**
 * Creates and starts a server that is stopped at the end of the test. The lines of `authentication`
 * come before those of `pg_hba.conf` that trust everyone.
 */
export async function startCluster(t: Test, authentication = ''): Promise<Cluster> {
  const folder = serverFolder(t);
  const data = join(folder, 'data');
  await copyTemplate(data);
  const rules = join(data, 'pg_hba.conf');
  writeFileSync(rules, authentication + readFileSync(rules, 'utf8'));
  return serve(t, folder);
}

/**
 * Copies the data folder of a new server from a template, which takes a third of the time of
 * `initdb`. The next build removes the template.
 */
async function copyTemplate(data: string): Promise<void> {
  const [release = ''] = /\d+/.exec(await runAsServer('initdb', '--version')) ?? [];
  const template = fileURLToPath(new URL(`template-${release}`, import.meta.url));
  if (existsSync(template)) {
    await execute('cp', ['-a', template, data]);
    return;
  }
  await runAsServer(
    'initdb',
    ...['--pgdata', data, '--username', 'postgres', '--auth', 'trust', '--encoding', 'UTF8'],
    ...['--locale', 'C', '--no-sync', '--no-instructions'],
  );
  const copy = `${template}-${process.pid}`;
  await execute('cp', ['-a', data, copy]);
  // This fails if another test file has created the template meanwhile.
  await rename(copy, template).catch(() => undefined);
}

/** Stops a server and removes its folder, at the end of the test or when this process is killed. */
function stopAtEnd(t: Test, data: string): void {
  // The server may have exited, or be suspended by SIGSTOP.
  const command = `cat; kill -CONT $(head -n 1 "$1/postmaster.pid")
    "$0" -D "$1" -m immediate stop; rm -rf "\${1%/*}"`;
  const shell = spawn('sh', ['-c', command, find('pg_ctl') ?? '', data], {
    ...USER,
    cwd: '/',
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  const exited = once(shell, 'exit');
  t.teardown(async () => {
    shell.stdin.end();
    await exited;
  });
}

async function serve(t: Test, folder: string) {
  const data = join(folder, 'data');
  const port = await freePort();
  appendFileSync(
    join(data, 'postgresql.conf'),
    `listen_addresses = '127.0.0.1'\nport = ${port}\nunix_socket_directories = '${folder}'\n`,
  );

  const urlOf = (database: string, user = 'postgres'): string =>
    `postgres://${user}@127.0.0.1:${port}/${database}`;
  const url = urlOf('postgres');
  const control = (...args: readonly string[]): Promise<string> =>
    runAsServer('pg_ctl', '--pgdata', data, '--wait', '--silent', ...args);
  /** Runs SQL as the superuser, and returns the rows. */
  const sql = (text: string): Promise<Row[]> => query(url, text);
  /** Resolves to the rows of a query once there are any. */
  async function untilFound(text: string): Promise<Row[]> {
    let rows: Row[] = [];
    await until(async () => (rows = await sql(text)).length > 0);
    return rows;
  }
  /**
   * Makes the server read its settings again. Resolves once all its processes do so before their
   * next statement.
   */
  async function reload(): Promise<void> {
    const [row] = await sql('SELECT pg_conf_load_time()::text AS before, pg_reload_conf()');
    await untilFound(`SELECT WHERE pg_conf_load_time() <> '${String(row?.before)}'`);
  }
  const start = (): Promise<string> => control('--log', join(folder, 'log'), 'start');
  /** The process id of the postmaster. */
  const pid = (): number =>
    Number(readFileSync(join(data, 'postmaster.pid'), 'utf8').split('\n')[0]);

  let pids: string[] = [];

  stopAtEnd(t, data);
  await start();
  return {
    folder,
    data,
    port,
    /** The URL of a database that exists, as the superuser. */
    url,
    urlOf,
    sql,
    untilFound,
    reload,
    start,
    pid,
    stop: (mode: 'fast' | 'immediate' = 'fast') => control('--mode', mode, 'stop'),
    /** Makes a standby take writes. */
    promote: () => control('promote'),
    /** The messages of the server so far. */
    log: () => readFileSync(join(folder, 'log'), 'utf8'),
    /** Changes a setting of the server: `SET fsync = off`. */
    async configure(setting: string) {
      await sql(`ALTER SYSTEM ${setting}`);
      await reload();
    },
    /**
     * Creates an empty schema, which takes less time than a database. Resolves to the URL of the
     * superuser that owns it, and that has these settings, such as `work_mem = 64`.
     */
    async createSchema(...settings: readonly string[]) {
      const name = `plants_${++names}`;
      const altered = settings.map((setting) => `ALTER ROLE ${name} SET ${setting};`).join('');
      await sql(
        `CREATE ROLE ${name} SUPERUSER LOGIN; CREATE SCHEMA AUTHORIZATION ${name}; ${altered}`,
      );
      return urlOf('postgres', name);
    },
    /** Ends the sessions of all stores, and returns how many there were. */
    async endSessions() {
      const sessions = `pg_stat_activity WHERE application_name = 'plant-store'`;
      return (await sql(`SELECT pg_terminate_backend(pid) FROM ${sessions}`)).length;
    },
    /** Suspends all processes of the server. */
    async suspend() {
      const rows = await sql('SELECT pid FROM pg_stat_activity');
      pids = [pid(), ...rows.map(({ pid }) => pid)].map(String);
      // The command fails, because the process that answered the query has ended by then.
      spawnSync('kill', ['-s', 'STOP', ...pids]);
    },
    resume: async () => spawnSync('kill', ['-s', 'CONT', ...pids]),
  };
}

let names = 0;

/**
 * Starts a pair of servers. The primary acknowledges a commit once the standby has it.
 */
export async function startPair(t: Test): Promise<{ primary: Cluster; standby: Cluster }> {
  const primary = await startCluster(t);
  const folder = serverFolder(t);
  const copy = join(folder, 'data');
  // The files are copied, because pg_basebackup must not be older than the server.
  await primary.stop();
  await runAsServer('cp', '-a', primary.data, copy);
  await primary.start();
  const source = `host=127.0.0.1 port=${primary.port} user=postgres application_name=standby`;
  appendFileSync(join(copy, 'postgresql.conf'), `primary_conninfo = '${source}'\n`);
  await runAsServer('touch', join(copy, 'standby.signal'));
  const standby = await serve(t, folder);
  await primary.configure(`SET synchronous_standby_names = 'standby'`);
  await primary.untilFound(`SELECT FROM pg_stat_replication WHERE sync_state = 'sync'`);
  return { primary, standby };
}

export type Row = Record<string, unknown>;

/** Runs SQL on a new connection, and returns the rows. */
export async function query(url: string, text: string): Promise<Row[]> {
  const client = new pg.Client(url);
  await client.connect();
  try {
    return (await client.query<Row>(text)).rows;
  } finally {
    await client.end();
  }
}

/**
 * Begins a transaction as another program would. Resolves to a function that rolls it back. The end
 * of the test rolls it back, too.
 */
export async function begin(t: Test, url: string, text: string): Promise<() => Promise<void>> {
  const client = new pg.Client(url);
  await client.connect();
  const rollBack = (): Promise<void> => client.end();
  t.teardown(rollBack);
  await client.query(`BEGIN; ${text}`);
  return rollBack;
}

/** Creates a trigger that runs PL/pgSQL before each row is inserted. */
export async function createTrigger(url: string, body: string): Promise<void> {
  await query(
    url,
    `CREATE OR REPLACE FUNCTION before_plant() RETURNS trigger LANGUAGE plpgsql
      AS $$ BEGIN ${body} END $$;
    CREATE OR REPLACE TRIGGER before_plant BEFORE INSERT ON plants
      FOR EACH ROW EXECUTE FUNCTION before_plant()`,
  );
}

/** Waits until a condition is met. Only the timeout of the test limits this. */
export async function until(isMet: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await isMet())) await delay(10);
}

export function succeeds(promise: Promise<unknown>): Promise<boolean> {
  return promise.then(
    () => true,
    () => false,
  );
}
