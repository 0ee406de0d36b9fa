import { getSystemErrorMap } from 'node:util';

/** The code of a system error or of one of Node's own; `undefined` for anything else. */
export function codeOf(error: unknown): unknown {
  return (error as { code?: unknown } | null | undefined)?.code;
}

/** A system error in words, without the system call and the path: `permission denied (EACCES)`. */
export function reasonOf(error: unknown): string {
  const { errno, message } = error as NodeJS.ErrnoException;
  const [code, words] = getSystemErrorMap().get(errno ?? 0) ?? [];
  return words === undefined ? message : `${words} (${code})`;
}

/** The message of an error, or else its code: Node leaves the message empty if no address of a host answers. */
export function messageOf(error: unknown): string {
  return (error as Error).message || String(codeOf(error));
}
