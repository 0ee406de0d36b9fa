import { createPrivateKey } from 'node:crypto';
import { chownSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { openPostgresStore, type PostgresStoreOptions } from '../../dist/postgres/index.js';
import { selfSigned } from '../helpers/certificate.js';
import { block } from '../helpers/documents.js';
import { FERN } from '../helpers/plants.js';
import { freePort } from '../helpers/service.js';
import { missingForServers, query, startCluster, USER } from './cluster.js';
import { openStore } from './support.js';

const SECRET = 'pa:ss/w@rd%,';
const PASSWORD = encodeURIComponent(SECRET);
const TABLE =
  'CREATE TABLE plants (id bigint PRIMARY KEY, name text NOT NULL, tag text, exact text)';
const GRANT = 'GRANT SELECT, INSERT, UPDATE (exact) ON plants TO PUBLIC';

t.test('opening a store', { skip: missingForServers() }, async (t) => {
  const cluster = await startCluster(t, 'host all +clients all scram-sha-256\n');
  await cluster.sql('CREATE ROLE clients');
  let clients = 0;

  /**
   * Runs statements as the superuser in the schema of a new role without privileges. Resolves to
   * the URL of this role.
   */
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

  t.test('a store opens with the privileges that the document says to grant', async (t) => {
    let { url } = cluster;
    for (const line of block('Schema', 'sql').trim().split('\n'))
      if (line.startsWith('\\connect')) url = cluster.urlOf('plants');
      else await query(url, line);
    const store = await openStore(t, { url: cluster.urlOf('plants', 'plants') });
    t.equal(await store.add(FERN), 'created');
    t.equal(await store.add(FERN), 'unchanged');
  });

  t.test('a store that cannot open names the reason, and leaves no connection', async (t) => {
    await cluster.sql("CREATE DATABASE latin1 TEMPLATE template0 ENCODING LATIN1 LOCALE 'C'");
    const url = await prepared(TABLE, GRANT);
    const changed = (changes: Partial<URL>): string => Object.assign(new URL(url), changes).href;
    // The error that Node reports for a host with several addresses.
    const withoutMessage = new AggregateError([
      new Error('ECONNREFUSED ::1'),
      new Error('ETIMEDOUT'),
    ]);
    const nothing = undefined as unknown as Error & string;
    const refusals: [reason: RegExp, url: string, options?: Partial<PostgresStoreOptions>][] = [
      [
        /: the table plants is missing and cannot be created: permission denied for schema \w+$/,
        await prepared(),
      ],
      [/permission denied/, await prepared(TABLE, 'GRANT SELECT, INSERT ON plants TO PUBLIC')],
      [/permission denied/, await prepared(TABLE, 'GRANT SELECT, UPDATE ON plants TO PUBLIC')],
      [
        /"exact" does not exist|column .*exact/,
        await prepared(TABLE.replace(', exact text', ''), GRANT.replace('exact', 'id')),
      ],
      [/no unique/, await prepared(TABLE.replace('PRIMARY KEY', ''), GRANT)],
      [/encoding .* UTF8/, cluster.urlOf('latin1')],
      [/password authentication failed/, changed({ password: 'wrong' })],
      [/: no password is configured, and the server asks for one$/, changed({ password: '' })],
      [/does not exist/, changed({ pathname: '/none' })],
      [/ECONNREFUSED/, changed({ port: String(await freePort()) })],
      [/does not support SSL/, changed({ search: 'sslmode=verify-full' })],
      [/: no such file$/, url, { password: () => Promise.reject(new Error('no such file')) }],
      [/: ECONNREFUSED ::1; ETIMEDOUT$/, url, { password: () => Promise.reject(withoutMessage) }],
      [/password must be a string$/, url, { password: () => nothing }],
      [/timeout expired$/, url, { password: () => new Promise(() => undefined), timeoutMs: 300 }],
      [/timeout/, url, { password: () => Promise.reject(nothing), timeoutMs: 300 }],
    ];
    for (const [reason, url, options] of refusals)
      t.match(await refusalOf({ url, timeoutMs: 60_000, ...options }), reason);
    await cluster.untilFound(
      "SELECT WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'plant-store')",
    );
    const store = await openStore(t, { url: changed({ password: 'wrong' }), password: SECRET });
    t.equal(await store.add(FERN), 'created', 'nothing else was wrong');
  });

  t.test('over TLS, a store connects only to the server that the certificate names', async (t) => {
    const { key, cert } = selfSigned();
    for (const [name, content] of Object.entries({ 'server.key': key, 'server.crt': cert })) {
      const path = join(cluster.data, name);
      writeFileSync(path, content, { mode: 0o600 });
      if (USER) chownSync(path, USER.uid, USER.gid);
    }
    await cluster.sql(`ALTER SYSTEM SET ssl_ca_file = 'server.crt'`);
    await cluster.configure('SET ssl = on');
    const cipher = {
      type: 'pkcs8',
      format: 'pem',
      cipher: 'aes-256-cbc',
      passphrase: 'x',
    } as const;
    const encryptedKey = createPrivateKey(key).export(cipher);
    const folder = t.testdir({ 'ca.pem': cert, 'key.pem': key, 'encrypted.pem': encryptedKey });
    const urlOf = (mode: string, host = 'localhost'): string =>
      `postgres://postgres@${host}:${cluster.port}/postgres?sslmode=${mode}`;
    const root = `verify-full&sslrootcert=${folder}/ca.pem`;
    const own = `&sslcert=${folder}/ca.pem&sslkey=${folder}/key.pem&application_name=with%20a%20key`;
    const store = await openStore(t, { url: urlOf(root + own), connections: 1 });
    t.equal(await store.add(FERN), 'created');
    const names = `SELECT client_dn IS NOT NULL AS has_key FROM pg_stat_ssl
      JOIN pg_stat_activity USING (pid) WHERE application_name = 'with a key'`;
    t.strictSame(await cluster.sql(names), [{ has_key: true }], 'the certificate of the client');
    for (const mode of ['require', 'verify-ca', 'verify-full'])
      t.match(await refusalOf({ url: urlOf(mode) }), /self-signed/, mode);
    const modes = { disable: false, 'no-verify': true };
    for (const [mode, isSecret] of Object.entries(modes)) {
      const open = await openStore(t, { url: urlOf(mode), connections: 1 });
      const sessions = `SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE application_name = 'plant-store'`;
      t.strictSame(await cluster.sql(sessions), [{ ssl: isSecret }], mode);
      await open.close();
      await cluster.untilFound(`SELECT WHERE NOT EXISTS (${sessions})`);
    }
    const encrypted = own.replace('key.pem', 'encrypted.pem');
    t.match(
      await refusalOf({ url: urlOf(root + encrypted) }),
      /: sslcert and sslkey: must be .* not be encrypted: /,
    );
    t.match(await refusalOf({ url: urlOf(root, '127.0.0.1') }), /Hostname/);
    rmSync(`${folder}/ca.pem`);
    t.match(await refusalOf({ url: urlOf(root) }), /ENOENT.* open '.*ca\.pem'$/);
  });
});
