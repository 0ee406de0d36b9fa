/* The clients of the document try again, and end with a message that says what to change. */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { inspect, promisify } from 'node:util';

import t, { type Test } from 'tap';

import { PlantStoreError } from '../../dist/index.js';
import { createPlant } from '../embedding/examples/retry.js';
import { block } from '../helpers/documents.js';
import { missing } from '../helpers/needs.js';
import { serve } from '../helpers/service.js';
import { storeOf } from '../helpers/stores.js';

const PLANT = '{"id":7,"name":"Boston fern","tag":"indoor"}';
const TOKEN = 'a-secret-token';
const PYTHON = new URL('../../test/embedding/examples/create_plant.py', import.meta.url);

/**
 * Sends a plant to a port with a token. Resolves to the output of the client, or rejects with its
 * error.
 */
type Send = (t: Test, port: number, token: string) => Promise<string>;

async function run(file: string, ...args: readonly string[]): Promise<string> {
  return (await promisify(execFile)(file, args)).stdout;
}

const CLIENTS: Readonly<Record<string, readonly [need: string, send: Send]>> = {
  curl: [
    'curl',
    (_, port, token) => {
      const [, command = ''] = /^(curl[^]*)$/m.exec(block('Clients', 'sh')) ?? [];
      return run('sh', '-c', command.replace('8080', String(port)).replace(TOKEN, token));
    },
  ],
  Python: [
    'python3',
    (t, port, token) => {
      const call = `print(json.dumps(create_plant(json.loads('${PLANT}'), '${token}')))\n`;
      const code = readFileSync(PYTHON, 'utf8').replace('8080', String(port)) + call;
      const path = join(t.testdir({ 'client.py': code }), 'client.py');
      return run('python3', path);
    },
  ],
  TypeScript: [
    'true',
    async (_, port, token) => {
      const url = `http://127.0.0.1:${port}/plants`;
      return JSON.stringify(await createPlant(PLANT, token, url));
    },
  ],
};

for (const [name, [need, send]] of Object.entries(CLIENTS))
  t.test(`${name}: a plant is sent again after a 503`, { skip: missing(need) }, async (t) => {
    let attempts = 0;
    const store = storeOf(async () => {
      if (++attempts === 1) throw new PlantStoreError('unavailable', 'the disk is full');
      return 'created';
    });
    const { port } = await serve(t, { store });
    // curl prints the body of the 503, too.
    t.match(await send(t, port, TOKEN), /\{"name": ?"Boston fern", ?"tag": ?"indoor"\}\n?$/);
    t.equal(attempts, 2);
    const refused = await send(t, port, 'wrong').catch(inspect);
    t.match(refused, 'the bearer token is not valid', 'it is not sent again');
  });
