/** Returns a count with its noun: `1 plant`, `2 plants`. */
export function pluralize(count: number, thing: string): string {
  return `${count} ${thing}${count === 1 ? '' : 's'}`;
}
