import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

import t from 'tap';

import { STOPPING } from '../../dist/program/exit.js';
import { connect, exchange, message, TOKEN } from '../client.js';
import { missing } from './cluster.js';
import { CHANGED, checkOutputs, ends, SECRET, start, startDatabase, WELL } from './program.js';
import { skipTime } from '../system/program.js';

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
    const together = 'PLANT_STORE_FILE and PLANT_STORE_DATABASE_URL: must not be set together';
    const ofDatabase = (passwordFault: string): string[] => [
      'PLANT_STORE_DATABASE_URL: must be postgres://user[:password]@host[:port][,…]/database',
      `PLANT_STORE_DATABASE_PASSWORD_FILE: ${cwd}/password: ${passwordFault}`,
      'PLANT_STORE_DATABASE_CONNECTIONS: must be an integer between 1 and 1000',
    ];
    const stderr = [
      'PLANT_STORE_PORT: must be an integer between 0 and 65535',
      ...ofDatabase('no such file or directory (ENOENT)'),
      `PLANT_STORE_TOKEN_FILE: ${cwd}/token: line 1 has characters that a bearer token cannot have (RFC 6750)`,
      together,
    ];
    await ends(t, { code: 2, stderr }, { cwd, env });
    writeFileSync(join(cwd, 'password'), '\n');
    await ends(
      t,
      { code: 2, stderr: [...ofDatabase('holds no password'), together] },
      { cwd, env, args: ['import', 'none'] },
    );
  });

  t.test('a parameter of the URL that would be dropped unread is refused', async (t) => {
    const url = 'postgres://client@127.0.0.1:1/plants?schema=garden';
    const stderr = [
      'PLANT_STORE_DATABASE_URL: has the parameter "schema", which is none of sslmode, sslrootcert, sslcert, sslkey, uselibpqcompat, application_name',
    ];
    const env = { PLANT_STORE_DATABASE_URL: url, PLANT_STORE_TOKEN: TOKEN };
    await ends(t, { code: 2, stderr }, { env });
  });

  t.test('a token must be configured', async (t) => {
    const env = { PLANT_STORE_DATABASE_URL: 'postgres://client@127.0.0.1/plants' };
    const stderr = ['PLANT_STORE_TOKEN or PLANT_STORE_TOKEN_FILE: must be set'];
    await ends(t, { code: 2, stderr }, { env });
  });

  t.test('unknown arguments are refused', async (t) => {
    for (const args of [['import'], ['import', 'a', 'b'], ['export', 'a']]) {
      const stderr = [`${args.join(' ')}: no such command with these arguments; see --help`];
      await ends(t, { code: 2, stderr }, { args });
    }
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
    const script = 'dist/server.js';
    const stderr = ['the package pg cannot be loaded; install it with: npm install pg'];
    await ends(t, { code: 1, stderr }, { cwd, script, env });
    // The same in a file whose coverage is measured.
    const hooks = `export async function resolve(specifier, context, next) {
      if (specifier === 'pg') throw new Error('not found');
      return next(specifier, context);
    }`;
    const preload = `import { register } from 'node:module';
      register('data:text/javascript,${encodeURIComponent(hooks).replaceAll("'", '%27')}');`;
    await ends(t, { code: 1, stderr }, { preload, env });
    for (const name of ['pg', ...dependencies('pg')])
      symlinkSync(resolve('node_modules', name), join(cwd, 'node_modules', name));
    const refused = [
      'PLANT_STORE_DATABASE_URL: 127.0.0.1:1/plants: connect ECONNREFUSED 127.0.0.1:1',
    ];
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
  const { cluster, configured, sql, nameIn } = await startDatabase(t);

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
    const reason = 'synchronous_commit=off can lose plants';
    const stderr = [`PLANT_STORE_DATABASE_URL: 127.0.0.1:${cluster.port}/${name}: ${reason}`];
    await ends(t, { code: 1, stderr }, { env });
    const accepting = { ...env, PLANT_STORE_DATABASE_ACCEPT_DATA_LOSS: 'true' };
    const program = await start(t, { env: accepting });
    t.equal(await program.post(1), 200);
    t.strictSame(await program.stop(), WELL);
  });

  t.test('it ends in time although the database hangs', async (t) => {
    const env = await configured(t);
    const program = await start(t, {
      env,
      preload: skipTime(STOPPING.clientsMs, STOPPING.totalMs),
    });
    const hanging = await connect(t, program.port);
    await cluster.suspend(t);
    hanging.send(message());
    // The plant has been read once the next request has been answered.
    t.equal((await exchange(t, program.port, message({ method: 'GET' }))).status, 405);
    program.send('SIGTERM');
    t.equal((await hanging.answer()).status, 503);
    // It kills itself, unless the statement has been given up before.
    const ending = await program.ended;
    t.ok(ending.signal === null || ending.signal === 'SIGKILL', String(ending.signal));
  });
});

t.test('no output holds a password', { skip: missing() }, async (t) => checkOutputs(t));
