import { spawnSync } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';

import t from 'tap';

import { countDescriptors, fitConnections } from '../../dist/program/descriptors.js';

const noProc = process.platform === 'linux' ? false : 'needs /proc';

t.test('the descriptors of the process are counted', { skip: noProc }, async (t) => {
  const before = countDescriptors();
  const descriptors = Array.from({ length: 10 }, () => openSync('/dev/null', 'r'));
  const now = countDescriptors();
  for (const descriptor of descriptors) closeSync(descriptor);
  t.equal(now?.open, (before?.open ?? NaN) + descriptors.length);
  // A child inherits the limit.
  const { stdout } = spawnSync('sh', ['-c', 'ulimit -n'], { encoding: 'utf8' });
  t.equal(`${now?.max}\n`, stdout);
});

t.test('descriptors that cannot be counted are not reported', async (t) => {
  t.equal(countDescriptors(t.testdir()), undefined);
  t.equal(countDescriptors(t.testdir({ limits: 'Max open files 10 10 files\n' })), undefined);
  const unlimited = t.testdir({ limits: 'Max open files unlimited\n', fd: {} });
  t.equal(countDescriptors(unlimited), undefined);
});

t.test('the limits of connections are lowered to what the free descriptors allow', async (t) => {
  const wanted = { service: 1_000, monitor: 100 };
  const allowed = (max: number, ofDatabase = 0): unknown =>
    fitConnections(wanted, ofDatabase, { open: 20, max });
  const NEEDED = 20 + 16;
  t.strictSame(allowed(NEEDED + 1_100), wanted);
  t.strictSame(allowed(NEEDED + 1_099), { service: 999, monitor: 100 });
  t.strictSame(allowed(NEEDED + 1_100, 6), { service: 994, monitor: 100 });
  t.strictSame(allowed(NEEDED + 399), { service: 300, monitor: 99 });
  t.strictSame(allowed(NEEDED + 4), { service: 3, monitor: 1 });
  t.strictSame(allowed(NEEDED + 1), { service: 1, monitor: 0 });
  t.throws(() => allowed(NEEDED), { message: 'too few open files are allowed: 36 (ulimit -n)' });

  const withoutMonitor = { service: 10, monitor: 0 };
  const few = { open: 20, max: NEEDED + 8 };
  t.strictSame(fitConnections(withoutMonitor, 0, few), { service: 8, monitor: 0 });
  t.strictSame(fitConnections(wanted, 0, undefined), wanted, 'if they cannot be counted');
});
