/**
 * The handler of plant-store over PostgreSQL, with one INSERT for each plant: a pool of ten
 * connections, and statements that are prepared once on each of them.
 */

import { createServer } from 'node:http';
import pg from 'pg';
import { createPlantHandler, PlantStoreError } from '../../../dist/index.js';
import { listen, TOKEN } from './plants.js';

const INSERT = {
  name: 'insert',
  text: 'INSERT INTO plants (id, name, tag) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING',
};
const SELECT = { name: 'select', text: 'SELECT name, tag FROM plants WHERE id = $1' };

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 10 });

async function add({ id, name, tag }) {
  const { rowCount } = await pool.query({ ...INSERT, values: [id, name, tag] });
  if (rowCount === 1) return 'created';
  const { rows } = await pool.query({ ...SELECT, values: [id] });
  if (rows[0].name === name && rows[0].tag === (tag ?? null)) return 'unchanged';
  throw new PlantStoreError('conflict', 'the id belongs to a different plant');
}

listen(
  createServer(createPlantHandler({ store: { add, close: () => pool.end() }, tokens: [TOKEN] })),
);
