/** Resolves once an `AbortSignal` is aborted. */
export function whenAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve());
  });
}

/** Whether an error is the reason of an `AbortSignal` that is aborted, or was caused by it. */
export function isAbort(error: unknown, signal: AbortSignal): boolean {
  return signal.aborted && isCausedBy(error, signal.reason);
}

function isCausedBy(error: unknown, cause: unknown): boolean {
  return error === cause || (error instanceof Error && isCausedBy(error.cause, cause));
}
