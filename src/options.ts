/** @throws RangeError if the value of an option is not an integer between 1 and `max`. */
export function checkInteger(name: string, value: number, max: number): void {
  if (!Number.isInteger(value) || value < 1 || value > max)
    throw new RangeError(`${name}: must be an integer between 1 and ${max}`);
}

/** @throws TypeError if the value of an option is not a function. */
export function checkFunction(name: string, value: unknown): void {
  // A caller without types may pass anything.
  if (typeof value !== 'function') throw new TypeError(`${name}: must be a function`);
}
