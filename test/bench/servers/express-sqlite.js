/**
 * Express over node:sqlite, with one INSERT for each request, which is a transaction of its own.
 */

import { createServer } from 'node:http';
import express from 'express';
import {
  AUTHORIZATION,
  CONFLICT,
  FOLDER,
  INVALID,
  listen,
  plantIn,
  UNAUTHORIZED,
} from './plants.js';
import { insertInto, openDatabase } from './sqlite-database.js';

const insert = insertInto(openDatabase(FOLDER));
const app = express();

app.use((req, res, next) => {
  if (req.headers.authorization === AUTHORIZATION) next();
  else res.status(401).json(UNAUTHORIZED);
});
app.use(express.json());
app.post('/plants', (req, res) => {
  const plant = plantIn(req.body ?? {});
  if (plant === undefined) res.status(400).json(INVALID);
  else if (!insert(plant)) res.status(400).json(CONFLICT);
  else res.json({ name: plant.name, tag: plant.tag });
});
// Express takes a function with four parameters for one that handles errors.
app.use((error, req, res, _next) => res.status(400).json(INVALID));

listen(createServer(app));
