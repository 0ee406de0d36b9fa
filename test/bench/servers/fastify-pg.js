/**
 * Fastify over PostgreSQL, with one INSERT for each request: schemas for requests and responses, a
 * pool of ten connections (the default of pg), and a statement that each connection prepares once.
 */

import Fastify from 'fastify';
import pg from 'pg';
import { AUTHORIZATION, BACKLOG, CONFLICT, INVALID, PORT, UNAUTHORIZED } from './plants.js';

const { MAX_SAFE_INTEGER, MIN_SAFE_INTEGER } = Number;
const plant = { name: { type: 'string' }, tag: { type: 'string' } };
const id = { type: 'integer', minimum: MIN_SAFE_INTEGER, maximum: MAX_SAFE_INTEGER };
const schema = {
  body: { type: 'object', required: ['id', 'name'], properties: { id, ...plant } },
  response: { 200: { type: 'object', properties: plant } },
};
const INSERT = {
  name: 'insert',
  text: 'INSERT INTO plants (id, name, tag) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING',
};

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
await pool.query('CREATE TABLE plants (id bigint PRIMARY KEY, name text NOT NULL, tag text)');

const app = Fastify();

app.addHook('onRequest', (request, reply, next) => {
  if (request.headers.authorization === AUTHORIZATION) next();
  else reply.code(401).send(UNAUTHORIZED);
});
app.setErrorHandler((error, request, reply) => reply.code(400).send(INVALID));
app.post('/plants', { schema }, async (request, reply) => {
  const { id, name, tag } = request.body;
  const { rowCount } = await pool.query({ ...INSERT, values: [id, name, tag] });
  return rowCount === 1 ? { name, tag } : reply.code(400).send(CONFLICT);
});

const url = await app.listen({ port: Number(PORT), host: '127.0.0.1', backlog: BACKLOG });
console.log(`listening on ${url}`);
