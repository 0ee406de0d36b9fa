import { constants } from 'node:os';
import { getSystemErrorMap } from 'node:util';

/** The `code` of an error of the system or of Node; `undefined` for other values. */
export function codeOf(error: unknown): unknown {
  return (error as { code?: unknown } | null | undefined)?.code;
}

/**
 * Describes a system error without its system call and path: `permission denied (EACCES)`. Returns
 * the message of other errors.
 */
export function reasonOf(error: unknown): string {
  // What is thrown may be anything, such as the reason of an AbortSignal.
  const { errno = 0, message = String(error) } = (error ?? {}) as Partial<NodeJS.ErrnoException>;
  const [code, words] = getSystemErrorMap().get(errno) ?? [];
  if (words !== undefined) return `${words} (${code})`;
  // Node has no words for some system errors, such as EDQUOT, and names them by number only.
  const unnamed = Object.entries(constants.errno).find(([, value]) => value === -errno);
  return unnamed ? unnamed[0] : message;
}
