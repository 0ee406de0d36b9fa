import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import t from 'tap';

import { openPlantLog } from '../../dist/log/log.js';
import { claimsIn } from './lock-support.js';

// This test changes the user of its process. Each file of tests runs in a process of its own.
t.test('the lock of another user is not taken, and its socket is named', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'plants-'));
  const path = join(folder, 'plants.jsonl');
  const log = await openPlantLog(path);
  const [claim = ''] = claimsIn(folder);
  // Now only root may connect to it.
  chmodSync(join(folder, claim), 0);
  chmodSync(path, 0o666);
  chmodSync(folder, 0o777);
  const isRoot = process.geteuid?.() === 0;
  if (isRoot) process.seteuid?.('nobody');
  const refusal = await openPlantLog(path).catch((error: unknown) => error);
  if (isRoot) process.seteuid?.('root');
  const socket = join(folder, claim);
  t.match(refusal, {
    code: 'unavailable',
    message: `${path}: a process of another user has locked it; remove ${socket} if that process has ended`,
  });
  await log.close();
  rmSync(folder, { recursive: true });
});
