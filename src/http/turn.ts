let turn: Promise<void> | undefined;

/**
 * Resolves after the current poll phase, once everything that has arrived has been read. All callers in
 * one turn of the event loop share one `setImmediate`, which is much cheaper than one each. Each caller
 * continues in its own asynchronous context, as after any `await`.
 */
export function endOfTurn(): Promise<void> {
  turn ??= new Promise((resolve) => {
    setImmediate(() => {
      turn = undefined;
      resolve();
    });
  });
  return turn;
}
