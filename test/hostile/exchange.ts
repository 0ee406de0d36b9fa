import { strict as assert } from 'node:assert';
import { connect } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { setImmediate as nextTurn } from 'node:timers/promises';

import { parseAnswers, type Answer } from '../helpers/client.js';
import { conforms } from '../helpers/conformance.js';
import type { Ledger, Plant } from '../helpers/load.js';

/**
 * Sends pieces over a connection, ends it, and resolves to all answers once the program has closed it. Rejects if one
 * is incomplete, if the OpenAPI document does not describe it, or if the connection is reset.
 */
export async function exchange(port: number, pieces: readonly Buffer[]): Promise<Answer[]> {
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true, noDelay: true });
  const received = buffer(socket);
  for (const piece of pieces) {
    socket.write(piece);
    await nextTurn();
  }
  socket.end();
  const { answers, rest } = parseAnswers(await received);
  assert.equal(String(rest), '', 'every answer is complete');
  for (const answer of answers) conforms(answer);
  return answers;
}

/** Records the answer to a plant: it is stored, or refused because the program is busy or its client was late. */
export function record(ledger: Ledger, plant: Plant, answer: Answer | undefined): void {
  ledger.record(plant, answer?.status ?? 'no answer');
  if (!answer) return;
  if (answer.status === 200) assert.equal(answer.body, JSON.stringify({ ...plant, id: undefined }));
  else assert.ok([408, 503].includes(answer.status), `${answer.status} ${answer.body}`);
}
