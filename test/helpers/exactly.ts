/**
 * A pattern for `t.match`: a list of these elements and no more. An array as a pattern matches any
 * longer one, too, and an empty one matches all.
 */
export function exactly(...elements: readonly unknown[]): object {
  return Object.assign({}, elements, { length: elements.length });
}
