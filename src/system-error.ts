import { getSystemErrorMap } from 'node:util';

/** The `code` of an error of the system or of Node; `undefined` for other values. */
export function codeOf(error: unknown): unknown {
  return (error as { code?: unknown } | null | undefined)?.code;
}

/** Describes a system error without its system call and path: `permission denied (EACCES)`. */
export function reasonOf(error: unknown): string {
  const { errno, message } = error as NodeJS.ErrnoException;
  const [code, words] = getSystemErrorMap().get(errno ?? 0) ?? [];
  return words === undefined ? message : `${words} (${code})`;
}
