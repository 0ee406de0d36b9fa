/*
 * Four instances of the program on one database, under one load that sends any plant to any of them.
 */
import t from 'tap';

import { TOKEN } from '../client.js';
import { launch, type Process } from '../system/program.js';
import { missing, query, startCluster, until } from './cluster.js';

const INSTANCES = 4;
const CLIENTS = 64;
/** The number of clients that send the same ids, at about the same time. */
const RIVALS = 4;
/** Answers before one instance is killed, and after that. */
const ANSWERS = 1_500;

interface Instance extends Process {
  readonly url: string;
}

t.setTimeout(1_800_000);

t.test(`one of ${INSTANCES} instances is killed under load`, { skip: missing() }, async (t) => {
  const cluster = await startCluster(t);

  async function start(): Promise<Instance> {
    const program = launch(t, {
      command: [process.execPath, 'dist/server.js'],
      env: { PLANT_STORE_DATABASE_URL: cluster.url, PLANT_STORE_TOKEN: TOKEN },
    });
    const [, url = ''] = await program.says('stdout', /listening on (.+)\n/);
    return Object.assign(program, { url });
  }

  const instances = await Promise.all(Array.from({ length: INSTANCES }, start));
  const [first] = instances;
  const answers: { id: number; name: string; error: number | undefined }[] = [];
  let requests = 0;
  let failed = 0;
  let isOver = false;

  /** Sends a plant to one instance after another until one of them has stored or refused it. */
  async function add(id: number, name: string): Promise<void> {
    for (;;)
      try {
        const response = await fetch(`${instances[requests++ % INSTANCES]?.url}/plants`, {
          method: 'POST',
          headers: { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' },
          body: JSON.stringify({ id, name }),
        });
        const { error } = (await response.json()) as { error?: number };
        if (error === 503) continue;
        return void answers.push({ id, name, error });
      } catch {
        failed++;
      }
  }

  const clients = Array.from({ length: CLIENTS }, async (_, client) => {
    for (let id = client % (CLIENTS / RIVALS); !isOver; id += CLIENTS / RIVALS)
      await add(id, `variant ${client % 3}`);
  });
  await until(() => answers.length > ANSWERS);
  first?.send('SIGKILL');
  await first?.ended;
  await until(() => answers.length > 2 * ANSWERS);
  isOver = true;
  await Promise.all(clients);

  const rows = await query(cluster.url, 'SELECT id::int, name FROM plants');
  const stored = new Map(rows.map(({ id, name }) => [id, name]));
  t.equal(stored.size, rows.length, 'each id is stored once');
  const wrong = answers.filter(
    ({ id, name, error }) => error !== (stored.get(id) === name ? undefined : 409),
  );
  t.strictSame(wrong.slice(0, 10), [], `all ${answers.length} answers are true`);
  t.strictSame(new Set(answers.map(({ id }) => id)), new Set(stored.keys()));
  t.ok(failed > 0, `${failed} requests were not answered`);
  for (const instance of instances.slice(1)) {
    instance.send('SIGTERM');
    t.strictSame(await instance.ended, { code: 0, signal: null });
    t.equal(instance.stderr, '');
  }
});
