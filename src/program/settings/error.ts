import { reasonOf } from '../../system-error.js';

/**
 * Why settings or arguments are not valid: all problems, one sentence each. The program ends with
 * code 2.
 */
export class SettingsError extends Error {
  override readonly name = 'SettingsError';

  constructor(
    readonly problems: readonly string[],
    options?: ErrorOptions,
  ) {
    super(problems.join('; '), options);
  }
}

/**
 * Resolves to what `read` returns.
 *
 * @throws SettingsError with the problems of `read` if it fails, each after `name`: the name of a
 * setting or of a file.
 */
export async function nameProblems<Result>(
  name: string,
  read: () => Result | Promise<Result>,
): Promise<Result> {
  try {
    return await read();
  } catch (cause) {
    const problems = cause instanceof SettingsError ? cause.problems : [reasonOf(cause)];
    const named = problems.map((problem) => `${name}: ${problem}`);
    throw new SettingsError(named, { cause });
  }
}

/**
 * As {@link nameProblems}, but does not throw: it adds the problems to the given ones, and resolves
 * to `undefined`.
 */
export async function collectProblems<Result>(
  problems: string[],
  name: string,
  read: () => Result | Promise<Result>,
): Promise<Result | undefined> {
  try {
    return await nameProblems(name, read);
  } catch (error) {
    problems.push(...(error as SettingsError).problems);
    return undefined;
  }
}
