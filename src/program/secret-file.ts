import { constants } from 'node:fs';
import { open } from 'node:fs/promises';

import { statRegularFile } from '../log/files.js';

/** The largest file of tokens, of a password, or of a certificate or its key, in bytes. */
export const MAX_SECRET_BYTES = 1_048_576;

/** @throws Error if the file cannot be opened, is not a regular one, or is too large. */
export async function readSecretFile(path: string): Promise<Buffer> {
  // O_NONBLOCK: opening a FIFO that has no writer would block forever.
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    await statRegularFile(file);
    const buffer = Buffer.alloc(MAX_SECRET_BYTES + 1);
    let length = 0;
    for (;;) {
      const { bytesRead } = await file.read(buffer, length);
      length += bytesRead;
      if (length > MAX_SECRET_BYTES) throw new Error(`it is larger than ${MAX_SECRET_BYTES} bytes`);
      if (bytesRead === 0) return buffer.subarray(0, length);
    }
  } finally {
    await file.close();
  }
}
