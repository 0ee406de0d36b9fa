/** A simple Express application: append a line, sync, respond. */

import { appendFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import express from 'express';
import { AUTHORIZATION, CONFLICT, FOLDER, INVALID, UNAUTHORIZED, listen } from './plants.js';

const file = join(FOLDER, 'plants.jsonl');
const ids = new Set();
const app = express();

app.use((request, response, next) => {
  if (request.headers.authorization === AUTHORIZATION) next();
  else response.status(401).json(UNAUTHORIZED);
});
app.use(express.json());

app.post('/plants', async (request, response) => {
  const { id, name, tag } = request.body ?? {};
  if (!isPlant(id, name, tag)) return response.status(400).json(INVALID);
  if (ids.has(id)) return response.status(400).json(CONFLICT);
  ids.add(id);
  await appendFile(file, `${JSON.stringify({ id, name, tag })}\n`, { flush: true });
  response.json({ name, tag });
});

function isPlant(id, name, tag) {
  return (
    Number.isSafeInteger(id) &&
    typeof name === 'string' &&
    (tag === undefined || typeof tag === 'string')
  );
}

listen(createServer(app));
