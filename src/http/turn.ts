let turn: Promise<void> | undefined;

/**
 * Resolves after the current poll phase, once everything that has arrived has been read. All callers of
 * one turn of the event loop share one `setImmediate`, which costs a fraction of one for each, and each
 * continues in its own asynchronous context, as `await` does.
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
