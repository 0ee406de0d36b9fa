import type { HttpRequest } from './request.js';

/** The memory that a request takes, in bytes: about what was measured with Node 20 to 26. */
export const REQUEST_COST = {
  /** The objects of a request and of its response, and its place in the queue. */
  objects: 3072,
  /** A header line, in addition to its characters: its name and its value are strings in two tables. */
  line: 128,
  /** How many times a body is held: as bytes, as text, as the strings of the plant, and in the response. */
  bodyTimes: 4,
} as const;

export function memoryForHead({ url = '', rawHeaders }: HttpRequest): number {
  return REQUEST_COST.objects + url.length + memoryForLines(rawHeaders);
}

/** The memory for header or trailer lines, in which names and values alternate. */
export function memoryForLines(lines: readonly string[] = []): number {
  let bytes = (REQUEST_COST.line * lines.length) / 2;
  for (const text of lines) bytes += text.length;
  return bytes;
}

/** The memory for a body of this many bytes. */
export function memoryForBody(bytes: number): number {
  return REQUEST_COST.bodyTimes * bytes;
}
