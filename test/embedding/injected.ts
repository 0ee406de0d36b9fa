import type { Test } from 'tap';

import { createPlantHandler, type PlantHandler } from '../../dist/index.js';
import { TOKEN } from '../helpers/client.js';
import { FERN_JSON } from '../helpers/plants.js';
import { untilReleased } from '../helpers/service.js';
import { storeOf } from '../helpers/stores.js';

const HEADERS: Readonly<Record<string, string>> = {
  host: 'localhost',
  authorization: `Bearer ${TOKEN}`,
  'content-type': 'application/json',
};

/**
 * A request without a connection, as tools for tests create it. It lacks some members of the
 * requests of node:http.
 */
export const INJECTED = { method: 'POST', url: '/plants', headers: HEADERS, body: FERN_JSON };

/** Lets a handler respond to a request. Resolves to the body of the response. */
type Inject = (handler: PlantHandler, request: typeof INJECTED) => Promise<string>;

/**
 * Checks the answers to requests that a tool creates, and that these requests hold no memory
 * afterwards.
 */
export async function expectAnswers(t: Test, inject: Inject): Promise<void> {
  const handler = createPlantHandler({
    store: storeOf(async () => 'created'),
    tokens: [TOKEN],
    report: (message) => t.fail(message),
    maxBodyBytes: Buffer.byteLength(FERN_JSON),
  });
  const rows: readonly [error: number | undefined, parts: Partial<typeof INJECTED>][] = [
    [undefined, {}],
    [401, { headers: { host: 'localhost' } }],
    [413, { body: `${FERN_JSON} ` }],
    [422, { body: '{}' }],
    [undefined, { headers: { ...HEADERS, upgrade: 'h2c' } }],
  ];
  for (const [expected, parts] of rows) {
    const body = await inject(handler, { ...INJECTED, ...parts });
    const { error } = JSON.parse(body) as { error?: number };
    t.equal(error, expected, body);
  }
  // Memory is released once a response is flushed.
  await untilReleased({ handler });
}
