import { createHash } from 'node:crypto';

import { faults } from './errors.js';
import { createFile, writeAll, type FileSystem, type OpenFile } from './files.js';

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
 * Copies ranges of the log at `path` to a file beside it, which is named after its content: no other bytes are
 * replaced. Resolves to its path.
 */
export function keepAside(
  fs: FileSystem,
  path: string,
  log: OpenFile,
  kind: 'torn' | 'damaged',
  ranges: readonly Range[],
): Promise<string> {
  return createFile(fs, `${path}.${kind}.new`, async (file) => {
    const hash = createHash('sha256');
    for await (const chunk of chunksOf(log, ranges)) {
      hash.update(chunk);
      await writeAll(fs, file, chunk);
    }
    return `${path}.${kind}-${hash.digest('hex').slice(0, 16)}`;
  });
}
