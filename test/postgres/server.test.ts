import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

import t, { type Test } from 'tap';

import { openPlantLog } from '../../dist/index.js';
import { conforms } from '../conformance.js';
import { connect, exchange, message, TOKEN } from '../support.js';
import {
  hasten,
  launch,
  type Ending,
  type LaunchOptions,
  type Process,
} from '../system/program.js';
import { missing, query, startCluster, until } from './cluster.js';
import { startProxy } from './proxy.js';

const SCRIPT = resolve('dist/postgres/server.js');
const SECRET = 'pa:ss/w@rd%,';
const CHANGED = 'another-S3cret';
const WELL = { code: 0, signal: null };

/** Everything that a program of these tests has written. */
const outputs: Process[] = [];

function launchProgram(t: Test, options: LaunchOptions): Process {
  const program = launch(t, { script: SCRIPT, ...options });
  outputs.push(program);
  return program;
}

/** Runs the program to its end, and checks what it has written. */
async function ends(
  t: Test,
  expected: { code: number; stdout?: readonly string[]; stderr?: readonly string[] },
  options: LaunchOptions,
): Promise<void> {
  const { code, stdout = [], stderr = [] } = expected;
  const program = launchProgram(t, options);
  t.strictSame(await program.ended, { code, signal: null });
  t.strictSame(program.stdout.split('\n').toSorted(), ['', ...stdout].toSorted());
  const lines = stderr.map((line) => `plant-store: ${line}`);
  t.strictSame(program.stderr.split('\n'), [...lines, '']);
}

interface Serving extends Process {
  readonly port: number;
  /** The status of the answer to a plant with this id. */
  post(id: number, token?: string): Promise<number>;
  stop(): Promise<Ending>;
}

/** Starts the program and resolves once it serves. */
async function start(t: Test, options: LaunchOptions): Promise<Serving> {
  const program = launchProgram(t, options);
  const [, url = ''] = await program.says(
    'stdout',
    /^plant-store listening on (http:.+)\n(?:.+\n)*token: .+\n/,
  );
  return Object.assign(program, {
    port: Number(new URL(url).port),
    async post(id: number, token = TOKEN) {
      const headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' };
      const body = JSON.stringify({ id, name: 'Boston fern' });
      const answer = await fetch(`${url}/plants`, { method: 'POST', headers, body });
      const { status } = answer;
      conforms({ status, headers: Object.fromEntries(answer.headers), body: await answer.text() });
      return status;
    },
    async stop() {
      program.send('SIGTERM');
      return program.ended;
    },
  });
}

t.test('without a database', async (t) => {
  t.test('all faults of the settings are reported together', async (t) => {
    const cwd = t.testdir({ token: '???\n' });
    const env = {
      PLANT_STORE_PORT: '80x',
      PLANT_STORE_FILE: 'plants.jsonl',
      PLANT_STORE_TOKEN_FILE: 'token',
      PLANT_STORE_DATABASE_URL: `postgres://client:${SECRET}@127.0.0.1/plants`,
      PLANT_STORE_DATABASE_PASSWORD_FILE: 'password',
      PLANT_STORE_DATABASE_CONNECTIONS: '0',
    };
    const ofDatabase = [
      'PLANT_STORE_DATABASE_URL: must be postgres://user[:password]@host[:port][,…]/database',
      'PLANT_STORE_DATABASE_CONNECTIONS: must be an integer between 1 and 1000',
      `${cwd}/password: no such file or directory (ENOENT)`,
    ];
    const stderr = [
      'PLANT_STORE_FILE: is a setting of plant-store (dist/server.js)',
      'PLANT_STORE_PORT: must be an integer between 0 and 65535',
      ...ofDatabase,
      `${cwd}/token: line 1 has characters that a bearer token cannot have (RFC 6750)`,
    ];
    await ends(t, { code: 2, stderr }, { cwd, env });
    writeFileSync(join(cwd, 'password'), '\n');
    await ends(
      t,
      { code: 2, stderr: [...ofDatabase.slice(0, 2), `${cwd}/password: holds no password`] },
      { cwd, env, args: ['import', 'none'] },
    );
  });

  t.test('a token must be configured', async (t) => {
    const env = { PLANT_STORE_DATABASE_URL: 'postgres://client@127.0.0.1/plants' };
    const stderr = ['PLANT_STORE_TOKEN or PLANT_STORE_TOKEN_FILE: must be set'];
    await ends(t, { code: 2, stderr }, { env });
  });

  t.test('unknown arguments are refused', async (t) => {
    const stderr = ['unknown arguments; see --help'];
    for (const args of [['import'], ['export', 'a', 'b'], ['verify', 'a']])
      await ends(t, { code: 2, stderr }, { args });
  });

  t.test('--help and --version', async (t) => {
    const help = launchProgram(t, { args: ['--help'] });
    t.strictSame(await help.ended, WELL);
    const words = ['Usage: plant-store-postgres', 'import FILE', 'export FILE', '--version'];
    for (const word of [...words, 'PLANT_STORE_DATABASE_URL', 'SIGHUP']) t.match(help.stdout, word);
    for (const line of help.stdout.split('\n')) t.ok(line.length <= 100, line);
    const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
    await ends(t, { code: 0, stdout: [version] }, { args: ['--version'] });
  });

  t.test('without pg, it says what to install', async (t) => {
    // Outside of the repository, whose node_modules Node would also find.
    const cwd = mkdtempSync(join(tmpdir(), 'plant-store-'));
    t.teardown(() => rmSync(cwd, { recursive: true }));
    for (const name of ['package.json', 'dist', 'node_modules/typebox'])
      cpSync(name, join(cwd, name), { recursive: true });
    const env = {
      PLANT_STORE_TOKEN: TOKEN,
      PLANT_STORE_DATABASE_URL: 'postgres://client@127.0.0.1/plants',
    };
    const script = 'dist/postgres/server.js';
    const stderr = ['the package pg cannot be loaded; install it with: npm install pg'];
    await ends(t, { code: 1, stderr }, { cwd, script, env });
    // The same in a file whose coverage is measured.
    const url = JSON.stringify(pathToFileURL('dist/program/database.js'));
    const source = `import { databaseProgram } from ${url};
      databaseProgram(() => Promise.reject(new Error('not found')));`;
    const command = [process.execPath, '--input-type=module', '--eval', source];
    await ends(t, { code: 1, stderr }, { command, env });
    for (const name of ['pg', ...dependencies('pg')])
      symlinkSync(resolve('node_modules', name), join(cwd, 'node_modules', name));
    const refused = ['127.0.0.1:1/plants: connect ECONNREFUSED 127.0.0.1:1'];
    const unreachable = {
      ...env,
      PLANT_STORE_DATABASE_URL: 'postgres://client@127.0.0.1:1/plants',
    };
    await ends(t, { code: 1, stderr: refused }, { cwd, script, env: unreachable });
  });
});

function dependencies(name: string): string[] {
  const path = join('node_modules', name, 'package.json');
  const manifest = JSON.parse(readFileSync(path, 'utf8')) as { dependencies: object };
  return Object.keys(manifest.dependencies);
}

t.test('with a database', { skip: missing() }, async (t) => {
  const cluster = await startCluster(t, { authentication: 'host all client all scram-sha-256\n' });
  await cluster.sql(`CREATE ROLE client LOGIN PASSWORD '${SECRET}'`);

  /** The settings for a new database of the role `client`, whose password is in a file. */
  async function configured(t: Test, port = cluster.port): Promise<Record<string, string>> {
    const { pathname } = new URL(await cluster.createDatabase('OWNER client'));
    const cwd = t.testdir({ password: `${SECRET}\n` });
    return {
      PLANT_STORE_TOKEN: TOKEN,
      PLANT_STORE_DATABASE_URL: `postgres://client@127.0.0.1:${port}${pathname}`,
      PLANT_STORE_DATABASE_PASSWORD_FILE: join(cwd, 'password'),
    };
  }

  /** Runs SQL as the superuser in the configured database. */
  function sql(env: Record<string, string>, text: string): Promise<Record<string, unknown>[]> {
    return query(cluster.urlOf(nameIn(env)), text);
  }

  function nameIn({ PLANT_STORE_DATABASE_URL = '' }: Record<string, string>): string {
    return new URL(PLANT_STORE_DATABASE_URL).pathname.slice(1);
  }

  t.test('a plant answered with 200 is a row', async (t) => {
    const { PLANT_STORE_TOKEN, ...settings } = await configured(t);
    const tokens = join(t.testdirName, 'tokens');
    writeFileSync(tokens, `${PLANT_STORE_TOKEN}\n`);
    const env = { ...settings, PLANT_STORE_TOKEN_FILE: tokens };
    // These are not settings of the program.
    const others = { PGPASSWORD: 'x', PGHOST: 'x', PGOPTIONS: '-c x', NODE_PG_FORCE_NATIVE: '1' };
    const program = await start(t, { env: { ...env, ...others } });
    t.strictSame(program.stdout.split('\n').slice(1), [
      `database: 127.0.0.1:${cluster.port}/${nameIn(env)}`,
      `token: ${tokens}`,
      '',
    ]);
    t.equal(await program.post(7), 200);
    t.strictSame(await sql(env, 'SELECT * FROM plants'), [
      { id: '7', name: 'Boston fern', tag: null, exact: null },
    ]);
    t.equal(await program.post(7, 'new'), 401);
    writeFileSync(tokens, 'new\n');
    program.send('SIGHUP');
    await program.says('stderr', /tokens: accepts 1 token\n/);
    t.equal(await program.post(7, 'new'), 200);
    t.strictSame(await program.stop(), WELL);
  });

  t.test('the password file is read for each connection', async (t) => {
    const configuration = await configured(t);
    const env = { ...configuration, PLANT_STORE_DATABASE_CONNECTIONS: '1' };
    const program = await start(t, { env });
    t.match(program.stdout, '\ntoken: from PLANT_STORE_TOKEN\n');
    await cluster.sql(`ALTER ROLE client PASSWORD '${CHANGED}'`);
    t.teardown(() => cluster.sql(`ALTER ROLE client PASSWORD '${SECRET}'`));
    const name = nameIn(env);
    const connections = await cluster.sql(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '${name}'`,
    );
    t.equal(connections.length, 1);
    t.equal(await program.post(1), 503);
    await program.says('stderr', /; plants are refused until it is available again\n/);
    writeFileSync(configuration.PLANT_STORE_DATABASE_PASSWORD_FILE ?? '', CHANGED);
    while ((await program.post(1)) !== 200);
    await program.says('stderr', /: plants are stored again\n/);
    t.equal(program.stderr.split('\n').length, 3, 'each on one line, without a stack');
    t.strictSame(await program.stop(), WELL);
  });

  t.test('a database that loses plants has to be accepted', async (t) => {
    const env = await configured(t);
    const name = nameIn(env);
    await cluster.sql(`ALTER ROLE client IN DATABASE ${name} SET synchronous_commit = off`);
    const stderr = [`127.0.0.1:${cluster.port}/${name}: synchronous_commit=off can lose plants`];
    await ends(t, { code: 1, stderr }, { env });
    const accepting = { ...env, PLANT_STORE_DATABASE_ACCEPT_DATA_LOSS: 'true' };
    const program = await start(t, { env: accepting });
    t.equal(await program.post(1), 200);
    t.strictSame(await program.stop(), WELL);
  });

  t.test('it ends in time although the database hangs', async (t) => {
    const env = await configured(t);
    const program = await start(t, { env, preload: hasten(10_000) });
    const hanging = await connect(t, program.port);
    const processes = await cluster.sql(
      `SELECT pid FROM pg_stat_activity WHERE datname = '${nameIn(env)}'`,
    );
    const pids = [cluster.pid(), ...processes.map(({ pid }) => Number(pid))];
    const signal = (name: NodeJS.Signals): void => {
      for (const pid of pids) process.kill(pid, name);
    };
    t.teardown(() => signal('SIGCONT'));
    signal('SIGSTOP');
    hanging.send(message());
    // The plant has been read once the next request has been answered.
    t.equal((await exchange(t, program.port, message({ method: 'GET' }))).status, 405);
    program.send('SIGTERM');
    t.equal((await hanging.answer()).status, 503);
    t.match(await program.ended, { code: Number, signal: null });
  });

  t.test('moving from a log to a database, and back', async (t) => {
    const COUNT = 20_000;
    const proxy = await startProxy(t, cluster.port);
    const env = await configured(t, proxy.port);
    const folder = t.testdirName;
    const [from, to] = [join(folder, 'from.jsonl'), join(folder, 'to.jsonl')];
    const plants = Array.from({ length: COUNT }, (_, n) => ({ id: BigInt(n), name: `fern ${n}` }));
    const log = await openPlantLog(from);
    await Promise.all(plants.map((plant) => log.add(plant)));
    await log.close();

    const importing = { env, args: ['import', from], preload: STILL };
    const exporting = { env, args: ['export', to], preload: STILL };
    const summary = (path: string, ...counts: readonly number[]): string => {
      const [created = 0, unchanged = 0, different = 0] = counts;
      const copied = `${created} plant${created === 1 ? '' : 's'} copied`;
      return `${path}: ${copied}, ${unchanged} unchanged, ${different} different`;
    };
    const INTERRUPTED = 'plant-store: interrupted; run the same command again to continue\n';

    t.test('an import that hangs can be interrupted and repeated', async (t) => {
      proxy.nextCut = () => ({ bytes: 300_000, mode: 'silence' });
      const program = launchProgram(t, importing);
      const has = async (query: string): Promise<boolean> => (await sql(env, query)).length > 0;
      await until(() => has(`SELECT 1 FROM pg_tables WHERE tablename = 'plants'`));
      await until(() => has('SELECT 1 FROM plants LIMIT 1'));
      program.send('SIGINT');
      t.strictSame(await program.ended, { code: 3, signal: null });
      t.equal(program.stderr, INTERRUPTED);
      t.match(program.stdout, /^\S+: \d+ plants copied, 0 unchanged, 0 different\n$/);
      proxy.nextCut = () => undefined;
      const own = `datname = '${nameIn(env)}' AND application_name = 'plant-store'`;
      await until(async () => !(await has(`SELECT 1 FROM pg_stat_activity WHERE ${own}`)));
      const [{ stored } = {}] = await sql(env, 'SELECT count(*)::int AS stored FROM plants');
      const before = Number(stored);
      t.ok(before > 0 && before < COUNT, `${before} plants were stored`);
      await ends(t, { code: 0, stdout: [summary(from, COUNT - before, before)] }, importing);
    });

    t.test('what differs is named, and not changed', async (t) => {
      await sql(env, `UPDATE plants SET tag = 'indoor' WHERE id IN (7, 15000)`);
      const stdout = ['plant 7 differs', 'plant 15000 differs', summary(from, 0, COUNT - 2, 2)];
      await ends(t, { code: 1, stdout }, importing);
      const [{ different } = {}] = await sql(
        env,
        `SELECT count(*)::int AS different FROM plants WHERE tag = 'indoor'`,
      );
      t.equal(different, 2);
    });

    t.test('an export that hangs can be interrupted and repeated', async (t) => {
      // The first page arrives, which is 10,000 plants.
      let connections = 0;
      proxy.nextCut = () => (++connections === 3 ? { bytes: 600_000, mode: 'silence' } : undefined);
      const program = launchProgram(t, exporting);
      const lines = (): number => readFileSync(to, 'latin1').split('\n').length - 1;
      await until(() => connections === 3 && lines() === 10_000);
      program.send('SIGTERM');
      t.strictSame(await program.ended, { code: 3, signal: null });
      t.equal(program.stderr, INTERRUPTED);
      t.match(program.stdout, /^\S+: \d+ plants copied, 0 unchanged, 0 different\n$/);
      await ends(t, { code: 0, stdout: [summary(to, 10_000, 10_000)] }, exporting);
      await ends(t, { code: 0, stdout: [summary(to, 0, COUNT)] }, exporting);
    });

    t.test('the file store opens what was exported', async (t) => {
      const log = await openPlantLog(to);
      t.equal(log.size, COUNT);
      for (const { id, name } of plants.slice(0, 10)) {
        const plant = id === 7n ? { id, name, tag: 'indoor' } : { id, name };
        t.equal(await log.add(plant), 'unchanged');
      }
      const stderr = [
        `${to}: another process has the log open; one log serves one process, plant-store/postgres serves several`,
      ];
      await ends(t, { code: 1, stderr }, exporting);
      await log.close();
    });

    t.test('a log that differs from the database is not changed', async (t) => {
      const bytes = readFileSync(from);
      const args = ['export', from];
      const stdout = ['plant 7 differs', 'plant 15000 differs', summary(from, 0, COUNT - 2, 2)];
      await ends(t, { code: 1, stdout }, { ...exporting, args });
      t.ok(readFileSync(from).equals(bytes));
    });

    t.test('it reports how far it is', async (t) => {
      const path = join(folder, 'few.jsonl');
      await sql(env, 'DELETE FROM plants WHERE id > 1');
      const stderr = [1, 2].map((n) => `exporting ${path}: ${n} plant${n === 1 ? '' : 's'}`);
      await ends(
        t,
        { code: 0, stdout: [summary(path, 2)], stderr },
        { env, args: ['export', path], preload: SLOW },
      );
    });

    t.test('a damaged log is imported up to the damage', async (t) => {
      const path = join(folder, 'damaged.jsonl');
      writeFileSync(path, '{"id":50000,"name":"fern"}\n{"id":50001}\n');
      const stderr = [
        `${path}: line 2, at byte 27: it is not a valid record, or its checksum does not match`,
        'the log was not changed; plant-store verify lists its damaged lines, plant-store repair moves them aside',
      ];
      const args = ['import', path];
      await ends(t, { code: 1, stdout: [summary(path, 1)], stderr }, { ...importing, args });
    });
  });
});

/** The clock stands still, so that no progress is reported. */
const STILL = 'performance.now = () => 0;';
/** A second passes whenever the program looks at the clock. */
const SLOW = 'let now = 0; performance.now = () => (now += 1000);';

t.test('no output holds a password', async (t) => {
  for (const { stdout, stderr } of outputs)
    for (const secret of [SECRET, encodeURIComponent(SECRET), CHANGED])
      t.notOk((stdout + stderr).includes(secret));
});
