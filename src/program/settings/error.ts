import { reasonOf } from '../../system-error.js';

/** Why settings or arguments are not valid: all problems, one sentence each. The program ends with code 2. */
export class SettingsError extends Error {
  override readonly name = 'SettingsError';

  constructor(
    readonly problems: readonly string[],
    options?: ErrorOptions,
  ) {
    super(problems.join('; '), options);
  }
}

/** Resolves to what `read` returns. If it fails, throws its problems, each after `name`. */
export async function naming<Result>(
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

/** As {@link naming}, but adds the problems to others, and resolves to `undefined`. */
export async function collectProblems<Result>(
  problems: string[],
  name: string,
  read: () => Result | Promise<Result>,
): Promise<Result | undefined> {
  try {
    return await naming(name, read);
  } catch (error) {
    problems.push(...(error as SettingsError).problems);
    return undefined;
  }
}
