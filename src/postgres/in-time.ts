import { setTimeout as delay } from 'node:timers/promises';

/** Settles as `work` does, or rejects with an error that has this message after `timeoutMs`. */
export async function inTime<T>(work: Promise<T>, timeoutMs: number, message: string): Promise<T> {
  return Promise.race([work, expire(timeoutMs, message)]);
}

async function expire(timeoutMs: number, message: string): Promise<never> {
  await delay(timeoutMs, undefined, { ref: false });
  throw new Error(message);
}
