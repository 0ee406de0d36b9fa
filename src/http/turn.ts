import { AsyncResource } from 'node:async_hooks';

let waiting: (() => void)[] = [];

/**
 * Does some work once all that has arrived in this turn of the event loop has been read: all such
 * work together, which costs a fraction of a `setImmediate` for each.
 *
 * It is done outside of the asynchronous context of any request, so that none sees another's.
 */
export function atEndOfTurn(work: () => void): void {
  if (waiting.push(work) === 1) setImmediate(doAll);
}

const doAll = AsyncResource.bind(() => {
  const all = waiting;
  waiting = [];
  let begun = 0;
  try {
    for (const work of all) {
      begun++;
      work();
    }
  } finally {
    // Where one throws, the others are still done.
    for (const work of all.slice(begun)) atEndOfTurn(work);
  }
});
