/** @throws RangeError if the value of an option is not an integer between 1 and `max`. */
export function checkRange(name: string, value: number, max: number): void {
  if (!Number.isInteger(value) || value < 1 || value > max)
    throw new RangeError(`${name}: must be an integer between 1 and ${max}`);
}
