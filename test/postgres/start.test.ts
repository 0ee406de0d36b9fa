import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { openPostgresStore, type PostgresStoreOptions } from '../../dist/postgres/index.js';
import { selfSigned } from '../certificate.js';
import { freePort } from '../service.js';
import { missing, query, startCluster, USER } from './cluster.js';
import { FERN, IVY, openStore } from './support.js';

const SECRET = 'pa:ss/w@rd%,';
const PASSWORD = encodeURIComponent(SECRET);

t.test('opening a store', { skip: missing() }, async (t) => {
  const authentication = 'host all +clients all scram-sha-256\n';
  const cluster = await startCluster(t, { authentication });
  const { port } = cluster;
  await cluster.sql('CREATE ROLE clients');
  let clients = 0;

  /** Runs statements as the superuser, in the schema of a new role without privileges. */
  async function prepared(...statements: readonly string[]): Promise<string> {
    const client = `client_${++clients}`;
    await cluster.sql(
      [
        `CREATE ROLE ${client} LOGIN PASSWORD '${SECRET}' IN ROLE clients`,
        `CREATE SCHEMA ${client}; GRANT USAGE ON SCHEMA ${client} TO ${client}`,
        `SET search_path = ${client}`,
        ...statements,
      ].join(';'),
    );
    return cluster.urlOf('postgres', `${client}:${PASSWORD}`);
  }

  async function refusalOf(options: PostgresStoreOptions): Promise<string> {
    const error = await openPostgresStore(options).catch((error: unknown) => error);
    t.match(error, { name: 'PlantStoreError', code: 'unavailable', message: String });
    const { message } = error as Error;
    t.notOk(message.includes(SECRET) || message.includes(PASSWORD), 'it holds no password');
    t.notMatch(message, /\n|\.$/, 'it is one sentence');
    return message;
  }

  const TABLE =
    'CREATE TABLE plants (id bigint PRIMARY KEY, name text NOT NULL, tag text, exact text)';
  const GRANT = 'GRANT SELECT, INSERT, UPDATE (exact) ON plants TO PUBLIC';

  t.test('with no more privileges than it needs', async (t) => {
    const store = await openStore(t, { url: await prepared(TABLE, GRANT) });
    t.equal(await store.add(FERN), 'created');
    t.equal(await store.add(FERN), 'unchanged');
  });

  t.test('what the README tells an administrator to run', async (t) => {
    const readme = readFileSync(new URL('../../src/postgres/README.md', import.meta.url), 'utf8');
    const [, sql = ''] = /^```sql\n(.*?)^```/ms.exec(readme) ?? [];
    const statements = sql
      .trim()
      .split('\n')
      .filter((line) => !line.startsWith('\\connect'));
    const urlOf = (statement: string): string =>
      /^CREATE (?:ROLE|DATABASE)/.test(statement) ? cluster.url : cluster.urlOf('plants');
    for (const statement of statements) await query(urlOf(statement), statement);
    const store = await openStore(t, { url: cluster.urlOf('plants', 'plants') });
    t.equal(await store.add(FERN), 'created');
    t.equal(await store.add(FERN), 'unchanged');
  });

  t.test('what it refuses', async (t) => {
    async function refuses(reason: RegExp, statements: readonly string[]): Promise<void> {
      t.match(await refusalOf({ url: await prepared(...statements) }), reason);
    }
    await refuses(
      /: the table plants is missing and cannot be created: permission denied for schema \w+; as an administrator, run CREATE TABLE plants \(id bigint .*\); GRANT .* TO client_\d+$/,
      [],
    );
    await refuses(/permission denied/, [TABLE]);
    await refuses(/permission denied/, [TABLE, 'GRANT SELECT, INSERT ON plants TO PUBLIC']);
    await refuses(/permission denied/, [TABLE, 'GRANT SELECT, UPDATE ON plants TO PUBLIC']);
    await refuses(/column/, [
      'CREATE TABLE plants (id bigint PRIMARY KEY, name text)',
      GRANT.replace('exact', 'id'),
    ]);
    await refuses(/unlogged/, [TABLE.replace('TABLE', 'UNLOGGED TABLE'), GRANT]);
    await refuses(/no unique/, [TABLE.replace('PRIMARY KEY', ''), GRANT]);

    async function refusesWith(reason: RegExp, setting: string): Promise<string> {
      const url = await prepared(TABLE, GRANT);
      await cluster.sql(`ALTER ROLE ${new URL(url).username} SET ${setting}`);
      t.match(await refusalOf({ url }), reason);
      return url;
    }
    await refusesWith(/read-only/, 'default_transaction_read_only = on');
    const url = await refusesWith(/synchronous_commit=off/, 'synchronous_commit = off');
    const store = await openStore(t, { url, acceptDataLoss: true });
    t.equal(await store.add(FERN), 'created', 'unless data loss is accepted');

    for (const encoding of ['LATIN1', 'SQL_ASCII']) {
      const url = await cluster.createDatabase(
        `TEMPLATE template0 ENCODING ${encoding} LOCALE 'C'`,
      );
      t.match(await refusalOf({ url }), /encoding .* UTF8/);
    }
  });

  t.test('a server without fsync is refused', async (t) => {
    const unsafe = await startCluster(t, { settings: { fsync: 'off' } });
    t.match(await refusalOf({ url: unsafe.url }), /fsync=off/);
    const store = await openStore(t, { url: unsafe.url, acceptDataLoss: true });
    t.equal(await store.add(FERN), 'created', 'unless data loss is accepted');
  });

  t.test('a wrong password, database, role or host is refused', async (t) => {
    const url = await prepared(TABLE, GRANT);
    const changed = (change: (url: URL) => void): string => {
      const copy = new URL(url);
      change(copy);
      return copy.href;
    };
    const wrong = changed((url) => (url.password = 'wrong'));
    t.match(await refusalOf({ url: wrong }), /password authentication failed/);
    t.match(await refusalOf({ url: changed((url) => (url.pathname = '/none')) }), /does not exist/);
    const unknown = changed((url) => (url.username = 'nobody'));
    t.match(await refusalOf({ url: unknown }), /does not exist/);
    const closed = await freePort();
    const nowhere = changed((url) => (url.port = String(closed)));
    t.match(await refusalOf({ url: nowhere }), /ECONNREFUSED/);
    // What Node gives if a host has several addresses.
    const error = Object.assign(new AggregateError([]), { code: 'ECONNREFUSED' });
    t.match(await refusalOf({ url, password: () => Promise.reject(error) }), /ECONNREFUSED$/);
    const query = changed((url) => (url.search = 'sslmode=verify-full'));
    t.match(await refusalOf({ url: query }), /does not support SSL/);

    const without = changed((url) => (url.password = ''));
    process.env.PGPASSWORD = SECRET;
    t.teardown(() => delete process.env.PGPASSWORD);
    t.match(await refusalOf({ url: without }), /password authentication failed/, 'not PGPASSWORD');
    const store = await openStore(t, { url: without, password: SECRET });
    t.equal(await store.add(FERN), 'created');
  });

  t.test('the password is asked for again for each connection', async (t) => {
    const url = new URL(await prepared(TABLE, GRANT));
    let password = SECRET;
    const store = await openStore(t, {
      url: url.href,
      connections: 1,
      password: async () => password,
    });
    await cluster.sql(`ALTER ROLE ${url.username} PASSWORD 'changed'`);
    t.equal(await store.add(FERN), 'created', 'a connection outlives its password');
    await cluster.sql(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '${url.username}'`,
    );
    await t.rejects(store.add(IVY), { code: 'unavailable' });
    await t.rejects(store.add(IVY), { code: 'unavailable', message: /password/ });
    password = 'changed';
    t.equal(await store.add(IVY), 'created');
    t.equal(store.reports.length, 2, 'away, and back');
  });

  t.test('a password function that fails keeps the store from opening', async (t) => {
    const url = await prepared(TABLE, GRANT);
    const nothing = undefined as unknown as Error;
    const failures: Record<string, [password: () => unknown, message: RegExp]> = {
      'it rejects': [async () => Promise.reject(new Error('no such file')), /: no such file$/],
      'it returns nothing': [() => undefined, /password must be a string$/],
      'it resolves to bytes': [async () => Buffer.from(SECRET), /Password must be a string$/],
      'it does not settle': [async () => new Promise(() => undefined), /timeout expired$/],
      'it rejects with nothing': [async () => Promise.reject(nothing), /timeout$/],
    };
    for (const [how, [given, message]] of Object.entries(failures)) {
      const password = given as () => string;
      t.match(await refusalOf({ url, password, timeoutMs: 2_000 }), message, how);
    }
    for (const password of [7, null, {}, Buffer.from(SECRET)])
      await t.rejects(openPostgresStore({ url, password } as unknown as PostgresStoreOptions), {
        name: 'TypeError',
        message: 'password: must be a string or a function',
      });
  });

  t.test('over TLS, only to the server that the certificate names', async (t) => {
    const { key, cert } = selfSigned();
    const files = { 'server.key': key, 'server.crt': cert };
    for (const [name, content] of Object.entries(files))
      writeFileSync(join(cluster.data, name), content, { mode: 0o600 });
    await chownAll(Object.keys(files).map((name) => join(cluster.data, name)));
    await cluster.sql('ALTER SYSTEM SET ssl = on');
    await cluster.sql('SELECT pg_reload_conf()');
    const ca = join(t.testdir(), 'ca.pem');
    writeFileSync(ca, cert);
    const urlOf = (host: string, root = ''): string =>
      `postgres://postgres@${host}:${port}/postgres?sslmode=verify-full${root}`;
    const store = await openStore(t, { url: urlOf('localhost', `&sslrootcert=${ca}`) });
    t.equal(await store.add(FERN), 'created');
    t.match(await refusalOf({ url: urlOf('localhost') }), /self-signed/);
    t.match(await refusalOf({ url: urlOf('127.0.0.1', `&sslrootcert=${ca}`) }), /IP/);

    await cluster.sql(`ALTER SYSTEM SET ssl_ca_file = 'server.crt'`);
    await cluster.sql('SELECT pg_reload_conf()');
    const keyFile = join(t.testdirName, 'key.pem');
    writeFileSync(keyFile, key);
    const own = `&sslrootcert=${ca}&sslcert=${ca}&sslkey=${keyFile}&application_name=with%20a%20key`;
    await openStore(t, { url: urlOf('localhost', own), connections: 1 });
    const names = `SELECT client_dn IS NOT NULL AS has_key FROM pg_stat_ssl
      JOIN pg_stat_activity USING (pid) WHERE application_name = 'with a key'`;
    t.strictSame(await cluster.sql(names), [{ has_key: true }], 'the certificate of the client');
    rmSync(ca);
    const url = urlOf('localhost', `&sslrootcert=${ca}`);
    t.match(await refusalOf({ url }), /ENOENT: no such file or directory, open '.*ca\.pem'$/);
  });
});

async function chownAll(paths: readonly string[]): Promise<void> {
  const { chown } = await import('node:fs/promises');
  for (const path of paths) if (USER) await chown(path, USER.uid, USER.gid);
}
