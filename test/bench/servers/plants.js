/**
 * Shared by the servers in this folder. Each reads PORT, FOLDER and TOKEN from the environment and
 * prints its URL. `plantServer` is the plain `node:http` service in front of the databases.
 */

import { createServer } from 'node:http';

export const { FOLDER, PORT, TOKEN } = process.env;

/**
 * With Node's default of 511, some of 4,096 simultaneous connections would be retried after a
 * second.
 */
export const BACKLOG = 4096;

export const AUTHORIZATION = `Bearer ${TOKEN}`;

export const UNAUTHORIZED = { error: 401, message: 'A bearer token is needed.' };
export const INVALID = { error: 422, message: 'The body must be a plant.' };
export const CONFLICT = { error: 409, message: 'The id belongs to another plant.' };

/** @param {import('node:http').Server} server */
export function listen(server) {
  server.listen(Number(PORT), '127.0.0.1', BACKLOG, () => {
    console.log(`listening on http://127.0.0.1:${server.address().port}`);
  });
}

/**
 * @param {(plant: { id: number, name: string, tag?: string }) => Promise<boolean>} add resolves to
 * false if the id exists
 */
export function plantServer(add) {
  return createServer((request, response) => {
    if (request.headers.authorization !== AUTHORIZATION) {
      return answer(response, 401, UNAUTHORIZED);
    }
    const chunks = [];
    request.on('data', (chunk) => chunks.push(chunk));
    request.on('end', () => create(chunks, response, add));
  });
}

async function create(chunks, response, add) {
  const plant = parsePlant(chunks);
  if (plant === undefined) return answer(response, 400, INVALID);
  if (!(await add(plant))) return answer(response, 400, CONFLICT);
  answer(response, 200, { name: plant.name, tag: plant.tag });
}

/** The plant in an object, or undefined if it is none. */
export function plantIn({ id, name, tag }) {
  const valid = Number.isSafeInteger(id) && typeof name === 'string';
  return valid && (tag === undefined || typeof tag === 'string') ? { id, name, tag } : undefined;
}

function parsePlant(chunks) {
  try {
    return plantIn(JSON.parse(chunks.length === 1 ? chunks[0] : Buffer.concat(chunks)));
  } catch {
    return undefined;
  }
}

function answer(response, status, content) {
  const body = JSON.stringify(content);
  const headers = { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) };
  response.writeHead(status, headers).end(body);
}
