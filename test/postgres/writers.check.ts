/* Processes that send the same ids at the same time; one of them is killed. */
import { execFile } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

import t from 'tap';

import { run } from '../command.js';
import { isLong } from '../length.js';
import { missing, query, startCluster } from './cluster.js';

const WRITER = fileURLToPath(new URL('writer.js', import.meta.url));
const SECONDS = isLong ? 180 : 6;
const LEVELS = ['read committed', 'serializable'];

t.setTimeout(1_800_000);

for (const level of LEVELS)
  t.test(`eight writers with the same ids agree, ${level}`, { skip: missing() }, async (t) => {
    const cluster = await startCluster(t);
    await cluster.sql(`ALTER ROLE postgres SET default_transaction_isolation = '${level}'`);
    const killed = execFile(process.execPath, [WRITER, cluster.url, '3600', '9']);
    const writers = Array.from({ length: 8 }, (_, n) =>
      run('/', process.execPath, WRITER, cluster.url, String(SECONDS), String(n + 1)),
    );
    await Promise.race([Promise.all(writers), delay(SECONDS * 500)]);
    killed.kill('SIGKILL');
    const answers = (await Promise.all(writers)).flatMap((output) => output.split('\n'));
    const rows = await query(cluster.url, 'SELECT id::text, name FROM plants');
    const stored = new Map(rows.map(({ id, name }) => [id, name]));
    const created = new Map<string, number>();
    const wrong = answers.filter((answer) => {
      const [id = '', variant = '', outcome = ''] = answer.split(' ');
      if (outcome === 'created') created.set(id, (created.get(id) ?? 0) + 1);
      const isSame = stored.get(id) === `variant ${variant}`;
      return isSame ? !['created', 'unchanged'].includes(outcome) : outcome !== 'conflict';
    });
    t.strictSame(wrong.slice(0, 10), [], 'every answer is true');
    t.ok(
      [...created.values()].every((count) => count === 1),
      'each id is created once',
    );
    // The other ids were created by the one that was killed.
    t.ok(created.size > 0 && created.size <= stored.size);
    t.notMatch(cluster.log(), /deadlock detected/);
    t.comment(`${answers.length} adds, ${stored.size} ids`);
  });
