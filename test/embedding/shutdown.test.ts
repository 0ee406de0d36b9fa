import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';

import t, { type Test } from 'tap';

import { connect, message, refusesConnections } from '../client.js';
import { writeExample } from '../example.js';
import { EMBEDDINGS, TOKEN } from './embeddings.js';

/** The documented server, in a process of its own. */
interface Application {
  readonly port: number;
  /** The path of its log. */
  readonly log: string;
  readonly kill: (signal: NodeJS.Signals) => void;
  /** Resolves to its exit code. */
  readonly exited: Promise<unknown>;
}

async function startApplication(t: Test): Promise<Application> {
  const { folder, path } = writeExample(
    t,
    `${EMBEDDINGS.http.replace('8080', '0')}
server.on('listening', () => console.log(server.address().port));`,
  );
  const child = spawn(process.execPath, [path], {
    cwd: folder,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = once(child, 'exit').then(([code]) => code as unknown);
  t.teardown(async () => {
    child.kill('SIGKILL');
    await exited;
  });
  const [port] = (await once(createInterface(child.stdout), 'line')) as [string];
  return {
    port: Number(port),
    log: join(folder, 'data/plants.jsonl'),
    kill: (signal) => child.kill(signal),
    exited,
  };
}

function plant(id: number): Buffer {
  const headers = { Authorization: `Bearer ${TOKEN}` };
  return message({ headers, body: `{"id":${id},"name":"Ivy"}` });
}

t.test('on SIGTERM, the request in flight is answered, and the exit code is 0', async (t) => {
  const application = await startApplication(t);
  const client = await connect(t, application.port);
  const [head = '', body = ''] = plant(1).toString().split('\r\n\r\n');
  client.send(`${head}\r\nExpect: 100-continue\r\n\r\n`);
  // The request has arrived.
  t.equal((await client.answer()).status, 100);
  application.kill('SIGTERM');
  await refusesConnections(t, application.port);
  client.send(body);
  t.match(await client.answer(), { status: 200 });
  client.socket.destroy();
  t.equal(await application.exited, 0);
  t.match(readFileSync(application.log, 'utf8'), /^\{"id":1,.*\n$/);
  t.strictSame(readdirSync(dirname(application.log)), ['plants.jsonl'], 'the lock is released');
});

t.test('when the log is poisoned, the exit code is 1', async (t) => {
  const application = await startApplication(t);
  appendFileSync(application.log, 'by another program\n');
  const client = await connect(t, application.port);
  client.send(plant(1));
  t.match(await client.answer(), { status: 503 });
  client.socket.destroy();
  t.equal(await application.exited, 1);
  t.equal(readFileSync(application.log, 'utf8'), 'by another program\n');
});
