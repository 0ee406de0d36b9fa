import { readFileSync } from 'node:fs';

import t, { type Test } from 'tap';

import { connect, message, TOKEN, type Answer } from '../client.js';
import { exactly } from '../exactly.js';
import { start } from './program.js';

const CLIENTS = 100;

/** Sends a plant from each of 100 clients at once. Resolves to the answers and the log. */
async function sendAtOnce(
  t: Test,
  plantOf: (client: number) => object,
): Promise<{ answers: Answer[]; plants: unknown[] }> {
  const env = { PLANT_STORE_TOKEN: TOKEN, PLANT_STORE_FILE: 'plants.jsonl' };
  const program = await start(t, { cwd: t.testdir(), env });
  const connecting = Array.from({ length: CLIENTS }, () => connect(t, program.port));
  const clients = await Promise.all(connecting);
  for (const [i, client] of clients.entries())
    client.send(message({ body: JSON.stringify(plantOf(i)) }));
  const answers = await Promise.all(clients.map((client) => client.answer()));
  const lines = readFileSync(program.log, 'utf8').trimEnd().split('\n');
  return { answers, plants: lines.map((line) => JSON.parse(line) as unknown) };
}

t.test('the same plant from 100 clients at once gets 100 times 200, and one line', async (t) => {
  const plant = { id: 7, name: 'fern', tag: 'indoor' };
  const { answers, plants } = await sendAtOnce(t, () => plant);
  for (const { status, body } of answers)
    t.strictSame({ status, body }, { status: 200, body: '{"name":"fern","tag":"indoor"}' });
  t.match(plants, exactly(plant));
});

t.test('of 100 plants with one id, one gets 200 and its line, and 99 get 409', async (t) => {
  const { answers, plants } = await sendAtOnce(t, (i) => ({ id: 7, name: `fern ${i}` }));
  const stored = answers.filter(({ status }) => status === 200);
  const refused = answers.filter(
    ({ status, body }) => status === 400 && body.includes('"error":409'),
  );
  t.equal(stored.length, 1);
  t.equal(refused.length, CLIENTS - 1);
  t.match(plants, exactly({ id: 7, ...(JSON.parse(stored[0]?.body ?? '') as object) }));
});
