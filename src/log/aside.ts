import { codeOf } from '../system-error.js';
import { faults } from './errors.js';
import { openToRead, type FileSystem, type OpenFile } from './files.js';

/** The bytes of a file from `start` up to, but not including, `end`. */
export interface Range {
  readonly start: number;
  end: number;
}

const COPY_BYTES = 1_048_576;

/**
 * Reads ranges of a file. Every chunk but the last is full, however short the ranges are, because
 * each may become a durable write. The last one may be empty.
 */
export async function* chunksOf(file: OpenFile, ranges: readonly Range[]): AsyncGenerator<Buffer> {
  const buffer = Buffer.allocUnsafe(COPY_BYTES);
  let held = 0;
  for (const { start, end } of ranges) {
    for (let at = start; at < end;) {
      const length = Math.min(buffer.length - held, end - at);
      const { bytesRead } = await file.read(buffer, held, length, at);
      if (bytesRead === 0) throw faults.truncated();
      at += bytesRead;
      held += bytesRead;
      if (held === buffer.length) {
        yield buffer;
        held = 0;
      }
    }
  }
  yield buffer.subarray(0, held);
}

/**
 * Returns a path at which ranges of a log can be kept: `path`, or else `path-2`, `path-3` and so on. A file
 * that was kept earlier is replaced only if the ranges begin with all of its bytes: then it is an earlier
 * copy of them, complete or interrupted.
 */
export async function unusedPath(
  fs: FileSystem,
  path: string,
  log: OpenFile,
  ranges: readonly Range[],
): Promise<string> {
  let candidate = path;
  for (let n = 2; !(await mayReplace(fs, candidate, log, ranges)); n++) candidate = `${path}-${n}`;
  return candidate;
}

async function mayReplace(
  fs: FileSystem,
  path: string,
  log: OpenFile,
  ranges: readonly Range[],
): Promise<boolean> {
  let file: OpenFile;
  try {
    file = await openToRead(fs, path);
  } catch (error) {
    // The file of another user.
    if (codeOf(error) === 'EACCES') return false;
    if (codeOf(error) === 'ENOENT') return true;
    throw error;
  }
  try {
    const stats = await file.stat();
    return stats.isFile() && (await beginsWith(log, ranges, file, stats.size));
  } finally {
    await file.close();
  }
}

/** Whether ranges of a log begin with the content of a file. */
async function beginsWith(
  log: OpenFile,
  ranges: readonly Range[],
  file: OpenFile,
  size: number,
): Promise<boolean> {
  const length = ranges.reduce((sum, { start, end }) => sum + end - start, 0);
  if (size > length) return false;
  const chunks = chunksOf(log, ranges);
  for await (const kept of chunksOf(file, [{ start: 0, end: size }])) {
    const chunk = await chunks.next();
    if (chunk.done || !kept.equals(chunk.value.subarray(0, kept.length))) return false;
  }
  return true;
}
