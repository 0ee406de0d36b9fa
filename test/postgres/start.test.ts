import { chownSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { openPostgresStore, type PostgresStoreOptions } from '../../dist/postgres/index.js';
import { selfSigned } from '../certificate.js';
import { freePort } from '../service.js';
import { missing, query, startCluster, USER } from './cluster.js';
import { FERN, IVY, openStore } from './support.js';

const SECRET = 'pa:ss/w@rd%,';
const PASSWORD = encodeURIComponent(SECRET);
const TABLE =
  'CREATE TABLE plants (id bigint PRIMARY KEY, name text NOT NULL, tag text, exact text)';
const GRANT = 'GRANT SELECT, INSERT, UPDATE (exact) ON plants TO PUBLIC';

t.test('opening a store', { skip: missing() }, async (t) => {
  const authentication = 'host all +clients all scram-sha-256\n';
  const cluster = await startCluster(t, { authentication });
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

  t.test(
    'with no more privileges than it needs, as the README tells an administrator',
    async (t) => {
      const readme = readFileSync(new URL('../../src/postgres/README.md', import.meta.url), 'utf8');
      const [, sql = ''] = /^```sql\n(.*?)^```/ms.exec(readme) ?? [];
      const statements = sql.trim().split('\n');
      for (const statement of statements.filter((line) => !line.startsWith('\\connect')))
        await query(
          /^CREATE (?:ROLE|DATABASE)/.test(statement) ? cluster.url : cluster.urlOf('plants'),
          statement,
        );
      const store = await openStore(t, { url: cluster.urlOf('plants', 'plants') });
      t.equal(await store.add(FERN), 'created');
      t.equal(await store.add(FERN), 'unchanged');
    },
  );

  t.test('a table that is missing, or lacks a privilege, a column or the key', async (t) => {
    const refusals: [reason: RegExp, statements: readonly string[]][] = [
      [
        /: the table plants is missing and cannot be created: permission denied for schema \w+; as an administrator, run CREATE TABLE plants \(id bigint .*\); GRANT .* TO client_\d+$/,
        [],
      ],
      [/permission denied/, [TABLE]],
      [/permission denied/, [TABLE, 'GRANT SELECT, INSERT ON plants TO PUBLIC']],
      [/permission denied/, [TABLE, 'GRANT SELECT, UPDATE ON plants TO PUBLIC']],
      [
        /"exact" does not exist|column .*exact/,
        [TABLE.replace(', exact text', ''), GRANT.replace('exact', 'id')],
      ],
      [/no unique/, [TABLE.replace('PRIMARY KEY', ''), GRANT]],
    ];
    for (const [reason, statements] of refusals)
      t.match(await refusalOf({ url: await prepared(...statements) }), reason);
  });

  t.test('a database with another encoding', async (t) => {
    for (const encoding of ['LATIN1', 'SQL_ASCII']) {
      const options = `TEMPLATE template0 ENCODING ${encoding} LOCALE 'C'`;
      t.match(await refusalOf({ url: await cluster.createDatabase(options) }), /encoding .* UTF8/);
    }
  });

  t.test('a wrong password, database, role or host', async (t) => {
    const url = await prepared(TABLE, GRANT);
    const changed = (changes: Partial<URL>): string => Object.assign(new URL(url), changes).href;
    const refusals: [reason: RegExp, changes: Partial<URL>][] = [
      [/password authentication failed/, { password: 'wrong' }],
      [/does not exist/, { pathname: '/none' }],
      [/does not exist/, { username: 'nobody' }],
      [/ECONNREFUSED/, { port: String(await freePort()) }],
      [/does not support SSL/, { search: 'sslmode=verify-full' }],
    ];
    for (const [reason, changes] of refusals)
      t.match(await refusalOf({ url: changed(changes) }), reason);
    const without = changed({ password: '' });
    process.env.PGPASSWORD = SECRET;
    t.teardown(() => delete process.env.PGPASSWORD);
    t.match(await refusalOf({ url: without }), /password authentication failed/, 'not PGPASSWORD');
    const store = await openStore(t, { url: without, password: SECRET });
    t.equal(await store.add(FERN), 'created');
  });

  t.test('a password function', async (t) => {
    const url = await prepared(TABLE, GRANT);
    const nothing = undefined as unknown as Error;
    // What Node gives if a host has several addresses.
    const withoutMessage = Object.assign(new AggregateError([]), { code: 'ECONNREFUSED' });
    const failures: Record<string, [password: () => unknown, message: RegExp, timeoutMs?: number]> =
      {
        'it rejects': [async () => Promise.reject(new Error('no such file')), /: no such file$/],
        'without a message': [async () => Promise.reject(withoutMessage), /: ECONNREFUSED$/],
        'it returns nothing': [() => undefined, /password must be a string$/],
        'it resolves to bytes': [async () => Buffer.from(SECRET), /Password must be a string$/],
        'it does not settle': [async () => new Promise(() => undefined), /timeout expired$/, 300],
        'it rejects with nothing': [async () => Promise.reject(nothing), /timeout/, 300],
      };
    for (const [how, [given, message, timeoutMs = 60_000]] of Object.entries(failures)) {
      const password = given as () => string;
      t.match(await refusalOf({ url, password, timeoutMs }), message, how);
    }

    const { username } = new URL(url);
    let password = SECRET;
    const store = await openStore(t, { url, connections: 1, password: async () => password });
    await cluster.sql(`ALTER ROLE ${username} PASSWORD 'changed'`);
    t.equal(await store.add(FERN), 'created', 'a connection outlives its password');
    await cluster.sql(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '${username}'`,
    );
    await t.rejects(store.add(IVY), { code: 'unavailable' });
    await t.rejects(store.add(IVY), { code: 'unavailable', message: /password/ });
    password = 'changed';
    t.equal(await store.add(IVY), 'created', 'it is called for each connection');
    t.equal(store.reports.length, 2, 'away, and back');
  });

  t.test('over TLS, only to the server that the certificate names', async (t) => {
    const { key, cert } = selfSigned();
    for (const [name, content] of Object.entries({ 'server.key': key, 'server.crt': cert })) {
      const path = join(cluster.data, name);
      writeFileSync(path, content, { mode: 0o600 });
      if (USER) chownSync(path, USER.uid, USER.gid);
    }
    await cluster.sql(`ALTER SYSTEM SET ssl_ca_file = 'server.crt'`);
    await cluster.configure('SET ssl = on');
    const folder = t.testdir({ 'ca.pem': cert, 'key.pem': key });
    const urlOf = (host: string, more = ''): string =>
      `postgres://postgres@${host}:${cluster.port}/postgres?sslmode=verify-full${more}`;
    const root = `&sslrootcert=${folder}/ca.pem`;
    const own = `&sslcert=${folder}/ca.pem&sslkey=${folder}/key.pem&application_name=with%20a%20key`;
    const store = await openStore(t, { url: urlOf('localhost', root + own), connections: 1 });
    t.equal(await store.add(FERN), 'created');
    const names = `SELECT client_dn IS NOT NULL AS has_key FROM pg_stat_ssl
      JOIN pg_stat_activity USING (pid) WHERE application_name = 'with a key'`;
    t.strictSame(await cluster.sql(names), [{ has_key: true }], 'the certificate of the client');
    t.match(await refusalOf({ url: urlOf('localhost') }), /self-signed/);
    t.match(await refusalOf({ url: urlOf('127.0.0.1', root) }), /IP/);
    rmSync(`${folder}/ca.pem`);
    t.match(await refusalOf({ url: urlOf('localhost', root) }), /ENOENT.* open '.*ca\.pem'$/);
  });
});
