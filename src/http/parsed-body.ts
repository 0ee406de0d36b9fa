import { types } from 'node:util';

import type { NewPlant } from '../plant.js';
import { checkNewPlant, parseNewPlant } from '../plant-json.js';
import type { Reservation } from './budget.js';
import { encode } from './encoding.js';
import { Failure, failures } from './failures.js';
import type { PlantHandlerLimits } from './limits.js';
import { memoryForBody } from './memory.js';
import type { HttpRequest } from './request.js';

/**
 * Returns the plant in the `rawBody` or `body` of a request that a body parser has read, within the limits
 * of size and memory.
 *
 * @throws Failure if there is neither, or if it exceeds a limit.
 * @throws PlantFault if it is not a plant.
 */
export function plantLeftIn(
  req: HttpRequest,
  limits: PlantHandlerLimits,
  reservation: Reservation,
): NewPlant {
  function admit(bytes: number): void {
    if (bytes > limits.maxBodyBytes) throw failures.tooLarge(limits.maxBodyBytes);
    if (!reservation.growBy(memoryForBody(bytes, limits))) throw failures.overloaded;
  }

  const left = req.rawBody ?? req.body;
  if (left === undefined) throw failures.consumed;
  const bytes = bytesIn(left);
  if (bytes instanceof Failure) throw bytes;
  if (bytes) {
    admit(bytes.length);
    return parseNewPlant(bytes);
  }
  const plant = checkNewPlant(left);
  // The body had at least one byte for each of these characters.
  admit(plant.name.length + (plant.tag ?? '').length);
  return plant;
}

/** The bytes that a body parser has stored on the request; `undefined` if it has parsed them. */
function bytesIn(left: unknown): Buffer | Failure | undefined {
  if (typeof left === 'string') return encode(left, 'utf8');
  if (ArrayBuffer.isView(left)) return Buffer.from(left.buffer, left.byteOffset, left.byteLength);
  return types.isAnyArrayBuffer(left) ? Buffer.from(left) : undefined;
}
