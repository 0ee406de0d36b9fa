import { PlantStoreError } from '../../store.js';

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
  return error instanceof SettingsError ? error.problems : [(error as Error).message];
}

/** Names a setting in the message if the file or the database that it names cannot be used. */
export async function namingSetting<Result>(
  name: string,
  result: Promise<Result>,
): Promise<Result> {
  try {
    return await result;
  } catch (cause) {
    if (!(cause instanceof PlantStoreError && cause.code === 'unavailable')) throw cause;
    throw new Error(`${name}: ${cause.message}`, { cause });
  }
}
