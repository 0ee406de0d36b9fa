import t from 'tap';

import { databaseUrlFault, parseDatabaseUrl } from '../dist/database-url.js';

t.test('a URL stands for several hosts', async (t) => {
  const url = 'postgresql://me:p%40ss@db1,db2:5433,%2Frun/plants?sslmode=verify-full';
  t.equal(databaseUrlFault(url), undefined);
  t.strictSame(parseDatabaseUrl(url).map(String), [
    'postgresql://me:p%40ss@db1:5432/plants?sslmode=verify-full',
    'postgresql://me:p%40ss@db2:5433/plants?sslmode=verify-full',
    'postgresql://me:p%40ss@%2Frun:5432/plants?sslmode=verify-full',
  ]);
  t.equal(parseDatabaseUrl('postgres://me@db/plants')[0]?.password, '%20', 'not that of pg');
});

t.test('a URL that is not valid is not repeated', async (t) => {
  const urls = ['', 'plants', 'http://me:S3cret@db/plants', 'postgres://db/plants'];
  const more = [
    'postgres://me:S3cret@db',
    'postgres://:S3cret@db/plants',
    'postgres://me:S3@cret@db/plants',
    'postgres://me@db:x/y',
    'postgres://me:S3cr%zz@db/plants',
  ];
  for (const url of [...urls, ...more])
    t.equal(
      databaseUrlFault(url),
      'must be postgres://user[:password]@host[:port][,…]/database',
      url,
    );
});
