/**
 * A pattern for `t.match` that matches a list of exactly these elements. An array as a pattern
 * would match longer lists, too, and an empty array would match everything.
 */
export function exactly(...elements: readonly unknown[]): object {
  return Object.assign({}, elements, { length: elements.length });
}
