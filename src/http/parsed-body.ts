import { membersInJson, type NewPlant } from '../plant.js';
import { checkNewPlant, parseNewPlant } from '../plant-json.js';
import { memoryForBody, type Reservation } from './budget.js';
import type { PlantHandlerLimits } from './limits.js';
import { failures } from './failures.js';
import type { HttpRequest } from './request.js';

/**
 * Returns the plant in the `rawBody` or `body` of a request that a body parser has read, within the
 * limits of size and memory.
 *
 * @throws Failure if there is neither, if the body is text with U+FFFD, or if it exceeds a limit.
 * @throws PlantFault if the body is not a plant.
 */
export function parsedPlant(
  req: HttpRequest,
  limits: PlantHandlerLimits,
  reservation: Reservation,
): NewPlant {
  function admit(bytes: number): void {
    if (bytes > limits.maxBodyBytes) throw failures.tooLarge(limits.maxBodyBytes);
    if (!reservation.growBy(memoryForBody(bytes))) throw failures.overloaded;
  }

  const stored = req.rawBody ?? req.body;
  if (stored === undefined) throw failures.consumed;
  const bytes = bytesIn(stored);
  if (bytes) {
    admit(bytes.length);
    return parseNewPlant(bytes);
  }
  const plant = checkNewPlant(stored);
  // The body had at least as many bytes: no JSON of these members is shorter.
  admit(Buffer.byteLength(membersInJson(plant)));
  return plant;
}

/** The bytes that a body parser has stored on the request; `undefined` if it has parsed them. */
function bytesIn(stored: unknown): Buffer | undefined {
  if (typeof stored === 'string') return encode(stored);
  if (!ArrayBuffer.isView(stored)) return undefined;
  return Buffer.from(stored.buffer, stored.byteOffset, stored.byteLength);
}

/** The bytes that a text was decoded from, unless U+FFFD may have replaced invalid ones. */
function encode(text: string): Buffer {
  const bytes = Buffer.from(text);
  // Lone surrogates are encoded as U+FFFD, too.
  if (bytes.includes('\ufffd')) throw failures.inexact;
  return bytes;
}
