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

/** The problems that an error stands for. */
export function problemsOf(error: unknown): readonly string[] {
  return error instanceof SettingsError ? error.problems : [reasonOf(error)];
}

/** Resolves to what `read` returns. If it fails, adds its problems, each after `prefix`, and resolves to `undefined`. */
export async function collectProblems<Result>(
  problems: string[],
  prefix: string,
  read: () => Result | Promise<Result>,
): Promise<Result | undefined> {
  try {
    return await read();
  } catch (error) {
    problems.push(...problemsOf(error).map((problem) => `${prefix}: ${problem}`));
    return undefined;
  }
}
