import t, { type Test } from 'tap';

import { parseDatabaseUrl } from '../../dist/postgres/url.js';

t.test('a URL with several hosts is split into one URL for each host', async (t) => {
  const url = 'postgresql://me:p%40ss@db1,[::1]:5433,%2Frun/plants?sslmode=verify-full';
  t.strictSame(parseDatabaseUrl(url).map(String), [
    'postgresql://me:p%40ss@db1:5432/plants?sslmode=verify-full',
    'postgresql://me:p%40ss@[::1]:5433/plants?sslmode=verify-full',
    'postgresql://me:p%40ss@%2Frun:5432/plants?sslmode=verify-full',
  ]);
});

const refusalOf = (t: Test, url: string): string =>
  (t.throws(() => parseDatabaseUrl(url), TypeError) as Error).message;

t.test('a URL that is not valid is refused, and not repeated', async (t) => {
  for (const url of [
    ...['', 'plants', 'http://me:S3cret@db/plants', 'postgres://db/plants', 'postgres://me@/db'],
    ...['postgres://me:S3cret@db', 'postgres://:S3cret@db/plants', 'postgres://me@db,/plants'],
    ...['postgres://me:S3@cret@db/plants', 'postgres://me@db:x/y', 'postgres://me:S3%zz@db/plants'],
    // This password is not percent-encoded.
    'postgres://me:S@3/cr?et=x@db/plants',
    undefined as unknown as string,
  ])
    t.equal(
      refusalOf(t, url),
      'the URL must be postgres://user[:password]@host[:port][,…]/database, user and password percent-encoded',
    );
});

t.test('a parameter is honoured or refused by name, without its value', async (t) => {
  const urlOf = (query: string): string => `postgres://me@db/plants?${query}`;
  const files = 'sslrootcert=a&sslcert=b&sslkey=c&application_name=d';
  for (const mode of ['disable', 'no-verify', 'prefer', 'require', 'verify-ca', 'verify-full'])
    t.equal(parseDatabaseUrl(urlOf(`sslmode=${mode}&${files}`)).length, 1);
  t.equal(parseDatabaseUrl(urlOf('')).length, 1);
  const names = 'sslmode, sslrootcert, sslcert, sslkey, application_name';
  for (const name of [
    ...[
      'schema',
      'options',
      'host',
      'query_timeout',
      'constructor',
      'SSLMODE',
      '',
      'a\r\n',
      'uselibpqcompat',
    ],
  ])
    t.equal(
      refusalOf(t, urlOf(`${encodeURIComponent(name)}=S3cret`)),
      `the URL has the parameter ${JSON.stringify(name)}, which is none of ${names}`,
    );
  const faults: Record<string, string> = {
    'sslmode=verify-full&sslmode=disable': 'the URL has "sslmode" more than once',
    'sslrootcert=': 'the URL has "sslrootcert" without a value',
    'sslmode=verify_full':
      'the URL has "sslmode" with a value other than disable, no-verify, prefer, require, verify-ca, verify-full',
  };
  for (const [query, message] of Object.entries(faults))
    t.equal(refusalOf(t, urlOf(query)), message);
});
