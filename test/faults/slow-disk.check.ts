import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { run } from '../system/program.js';
import { injecting } from './strace.js';
import { missing, settingsFor } from './support.js';

for (const args of [[], ['verify'], ['repair']])
  t.test(
    `${args[0] ?? 'the program'} reports its progress while it reads a log from a slow disk`,
    { skip: missing('strace') },
    async (t) => {
      const log = join(t.testdir(), 'plants.jsonl');
      const lines = Array.from({ length: 30_000 }, (_, id) => `{"id":${id},"name":"fern"}\n`);
      writeFileSync(log, `${lines.join('')}x\n`);
      const calls = { paths: [log], names: 'pread64' };
      const under = injecting(calls, 'pread64:delay_enter=1100000:when=2');
      const { stderr } = await run(t, { args, env: settingsFor(log), under });
      t.match(stderr, /reading .*: \d+ %/);
    },
  );
