import { AsyncLocalStorage } from 'node:async_hooks';

import t from 'tap';

import { endOfTurn } from '../../dist/http/turn.js';

t.test('all callers of one turn of the event loop wait for the same immediate', async (t) => {
  const first = endOfTurn();
  process.nextTick(() => t.equal(endOfTurn(), first));
  await Promise.resolve();
  t.equal(endOfTurn(), first);
  await first;
  t.not(endOfTurn(), first, 'the next turn has its own');
});

t.test('each caller continues in its own asynchronous context', async (t) => {
  const requests = new AsyncLocalStorage<number>();
  const wait = async (): Promise<number | undefined> => {
    await endOfTurn();
    return requests.getStore();
  };
  const seen = await Promise.all([1, 2, 3].map((id) => requests.run(id, wait)));
  t.strictSame(seen, [1, 2, 3]);
});
