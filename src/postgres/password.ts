import { inTime } from './in-time.js';

/**
 * A password, or a function that is called for each new connection.
 *
 * @example
 * ```ts
 * const password: Password = async () => (await readFile('password', 'utf8')).trim();
 * ```
 */
export type Password = string | (() => string | Promise<string>);

/**
 * Resolves to the password, or to nothing if there is none.
 *
 * @throws Error if the function throws, or does not settle within `timeoutMs`.
 */
export async function passwordFrom(
  password: Password | undefined,
  timeoutMs: number,
): Promise<string | undefined> {
  if (typeof password !== 'function') return password;
  let given: unknown;
  try {
    given = await inTime(Promise.resolve(password()), timeoutMs, 'the password function timed out');
  } catch (cause) {
    throw cause instanceof Error ? cause : new Error('the password function failed', { cause });
  }
  if (typeof given !== 'string') throw new Error('the password function returned no string');
  return given;
}
