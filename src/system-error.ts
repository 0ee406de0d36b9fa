import { constants } from 'node:os';
import { getSystemErrorMap } from 'node:util';

/** The `code` of an error of the system or of Node; `undefined` for other values. */
export function codeOf(error: unknown): unknown {
  return (error as { code?: unknown } | null | undefined)?.code;
}

/**
 * Describes a system error without its system call and path: `permission denied (EACCES)`. For
 * others, the message.
 */
export function reasonOf(error: unknown): string {
  // The reason of an AbortSignal may be anything.
  const { errno, message = String(error) } = (error ?? {}) as Partial<NodeJS.ErrnoException>;
  const [code, words] = getSystemErrorMap().get(errno ?? 0) ?? [];
  if (words !== undefined) return `${words} (${code})`;
  // Node has no words for some of them, such as EDQUOT: only the number is in the message.
  const unnamed = Object.entries(constants.errno).find(([, value]) => value === -(errno ?? 0));
  return unnamed ? unnamed[0] : message;
}
