import { PlantStoreError } from '../store.js';

/** Why settings are not valid: all faults, one sentence each. The program ends with code 2. */
export class SettingsError extends Error {
  override readonly name = 'SettingsError';

  constructor(
    readonly faults: readonly string[],
    options?: ErrorOptions,
  ) {
    super(faults.join('; '), options);
  }
}

/** Resolves to a result, or to `undefined` once the faults that prevent it are added to `faults`. */
export async function collect<Result>(
  faults: string[],
  result: Promise<Result>,
): Promise<Result | undefined> {
  try {
    return await result;
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    faults.push(...error.faults);
    return undefined;
  }
}

/** Names a setting in the message if the file or the database that it names cannot be used. */
export async function ofSetting<Result>(name: string, result: Promise<Result>): Promise<Result> {
  try {
    return await result;
  } catch (cause) {
    if (!(cause instanceof PlantStoreError && cause.code === 'unavailable')) throw cause;
    throw new Error(`${name}: ${cause.message}`, { cause });
  }
}
