import { spawnSync } from 'node:child_process';
import { constants, readFileSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { encodeRecord } from '../../dist/log/encode.js';
import { nodeSystem } from '../../dist/log/system.js';
import { FERN } from '../helpers/plants.js';

const LOG_MODULE = new URL('../../dist/log/log.js', import.meta.url).href;

/** Replaces every function of `node:fs` by one that calls it, as agents for monitoring do. */
const AGENT = `
const fs = require('node:fs');
const { syncBuiltinESMExports } = require('node:module');
for (const [name, original] of Object.entries(fs))
  if (typeof original === 'function' && !/^[A-Z]/.test(name))
    fs[name] = Object.assign(function (...args) {
      return Reflect.apply(original, this, args);
    }, original);
syncBuiltinESMExports();
`;

t.test('a log works in a process in which an agent has wrapped node:fs', async (t) => {
  const folder = t.testdir({ 'agent.cjs': AGENT });
  const path = join(folder, 'plants.jsonl');
  const script = `
    import { openPlantLog } from ${JSON.stringify(LOG_MODULE)};
    const plant = { id: ${FERN.id}n, name: ${JSON.stringify(FERN.name)}, tag: ${JSON.stringify(FERN.tag)} };
    for (let opened = 0; opened < 2; opened++) {
      const log = await openPlantLog(${JSON.stringify(path)});
      console.log(await log.add(plant), (await log.get(plant.id)).name, log.size);
      await log.close();
    }`;
  const args = ['--require', join(folder, 'agent.cjs'), '--input-type=module', '--eval', script];
  // If the numbers of bytes were lost, a start would never end, and a write would fill the disk.
  const { stdout, stderr, signal } = spawnSync(process.execPath, args, {
    encoding: 'utf8',
    timeout: 20_000,
  });
  t.strictSame(
    { stdout, stderr, signal },
    {
      stdout: 'created fern 1\nunchanged fern 1\n',
      stderr: '',
      signal: null,
    },
  );
  t.equal(readFileSync(path, 'utf8'), encodeRecord(FERN));
});

t.test('a read or a write that fails rejects with the error of the system', async (t) => {
  const path = join(t.testdir({ 'plants.jsonl': encodeRecord(FERN) }), 'plants.jsonl');
  const writable = await nodeSystem.open(path, constants.O_WRONLY);
  const read = nodeSystem.read(writable, Buffer.alloc(1), 0);
  await t.rejects(read, { code: 'EBADF', syscall: 'read' });
  const readable = await nodeSystem.open(path, constants.O_RDONLY);
  const written = nodeSystem.write(readable, Buffer.alloc(1));
  await t.rejects(written, { code: 'EBADF', syscall: 'write' });
  for (const descriptor of [writable, readable]) await nodeSystem.close(descriptor);
});
