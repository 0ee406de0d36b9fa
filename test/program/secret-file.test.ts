import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { MAX_SECRET_BYTES, readSecretFile } from '../../dist/program/secret-file.js';

t.test('a file is read whole, up to the limit', async (t) => {
  const path = join(t.testdir(), 'secret');
  for (const size of [0, 1, 65_537, MAX_SECRET_BYTES]) {
    const bytes = Buffer.alloc(size, 'secret');
    writeFileSync(path, bytes);
    t.ok((await readSecretFile(path)).equals(bytes), `${size} bytes`);
  }
  writeFileSync(path, Buffer.alloc(MAX_SECRET_BYTES + 1));
  await t.rejects(readSecretFile(path), { message: 'it is larger than 1048576 bytes' });
});
