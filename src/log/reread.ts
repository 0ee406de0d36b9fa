import type { Damage } from './errors.js';
import type { OpenFile } from './files.js';
import { endOfLine } from './lines.js';
import { NEWLINE } from './record.js';

/*
 * A log can be read while a server writes to it. If a write of the server fails, the server cuts it off
 * and writes other lines in its place, so what was read may be the start of one write and the rest of
 * another, and look damaged. A line is damaged if a second reading, which begins after the first one has
 * ended, finds the same bytes: then none of them were cut off in between.
 */

/** Reads damaged lines a second time. */
export interface SecondReader {
  /**
   * Whether the file still has a damaged line, and the record whose id it repeats. `line` is `undefined` if
   * it is longer than any record.
   */
  confirms(
    damage: Pick<Damage, 'offset' | 'length' | 'earlier'>,
    line: Buffer | undefined,
  ): Promise<boolean>;
  /**
   * Drops what the second reading has in memory. To be called after more of the file has been read, before
   * `confirms` is called for that part: it would otherwise compare with bytes that were read too early.
   */
  forget(): void;
}

const WINDOW_BYTES = 65_536;
const COMMA = 0x2c;

export function createSecondReader(file: OpenFile): SecondReader {
  const lines = createWindow(file);
  const earlierLines = createWindow(file);
  return {
    async confirms({ offset, length, earlier }, line) {
      if (!(await lines.hasLineAt(offset))) return false;
      if (!line) return (await endOfLine(file, offset)) === offset + length;
      if (!(await lines.hasAt(offset, line))) return false;
      if (earlier === undefined) return true;
      // The id is the first member of both.
      const id = line.subarray(0, line.indexOf(COMMA) + 1);
      return (await earlierLines.hasLineAt(earlier)) && earlierLines.hasAt(earlier, id);
    },
    forget() {
      lines.forget();
      earlierLines.forget();
    },
  };
}

/** Compares bytes with those of a file, which it reads in larger pieces than single lines. */
interface Window {
  /** Whether a line starts at an offset. */
  hasLineAt(offset: number): Promise<boolean>;
  hasAt(offset: number, bytes: Buffer): Promise<boolean>;
  forget(): void;
}

function createWindow(file: OpenFile): Window {
  const buffer = Buffer.allocUnsafe(WINDOW_BYTES);
  let offset = 0;
  let held = 0;

  /** The bytes from a position on: at least one, unless the file ends there. */
  async function bytesAt(position: number): Promise<Buffer> {
    if (position < offset || position >= offset + held) {
      held = 0;
      const { bytesRead } = await file.read(buffer, 0, buffer.length, position);
      offset = position;
      held = bytesRead;
    }
    return buffer.subarray(position - offset, held);
  }

  return {
    async hasLineAt(start) {
      return start === 0 || (await bytesAt(start - 1))[0] === NEWLINE;
    },
    async hasAt(start, bytes) {
      for (let rest = bytes; rest.length > 0;) {
        const found = await bytesAt(start + bytes.length - rest.length);
        const length = Math.min(found.length, rest.length);
        if (length === 0 || !found.subarray(0, length).equals(rest.subarray(0, length)))
          return false;
        rest = rest.subarray(length);
      }
      return true;
    },
    forget() {
      held = 0;
    },
  };
}
