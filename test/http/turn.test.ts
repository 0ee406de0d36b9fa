import { AsyncLocalStorage } from 'node:async_hooks';
import { execFileSync } from 'node:child_process';
import { createServer } from 'node:http';

import t from 'tap';

import { createPlantHandler, type PlantStore } from '../../dist/index.js';
import { exchange, listen, message, TOKEN } from '../support.js';

t.test('no request sees the asynchronous context of another', async (t) => {
  const requests = new AsyncLocalStorage<number>();
  const seen: unknown[] = [];
  const store: PlantStore = {
    async add() {
      seen.push(requests.getStore());
      return 'created';
    },
    close: async () => undefined,
  };
  const handler = createPlantHandler({ store, tokens: [TOKEN] });
  let count = 0;
  const server = createServer((req, res) => requests.run(++count, () => handler(req, res)));
  const port = await listen(t, server);
  await Promise.all(Array.from({ length: 50 }, () => exchange(t, port, message())));
  t.equal(count, 50);
  t.strictSame(seen, Array(50).fill(undefined));
});

t.test('work that throws does not keep other work from being done', async (t) => {
  const script = `
    import { atEndOfTurn } from './dist/http/turn.js';
    process.on('uncaughtException', ({ message }) => console.log(message));
    const work = (text) => () => console.log(text);
    const failing = (text) => () => { throw new Error(text); };
    [work('one'), failing('two'), work('three'), failing('four'), work('five')].forEach(atEndOfTurn);`;
  const args = ['--input-type=module', '--eval', script];
  const env = { ...process.env, NODE_OPTIONS: '' };
  const output = execFileSync(process.execPath, args, { env, encoding: 'utf8' });
  t.strictSame(output.trim().split('\n'), ['one', 'two', 'three', 'four', 'five']);
});
