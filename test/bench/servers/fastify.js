/** Fastify with schemas for requests and responses; stores nothing. */

import Fastify from 'fastify';
import { AUTHORIZATION, BACKLOG, INVALID, PORT, UNAUTHORIZED } from './plants.js';

const plant = { name: { type: 'string' }, tag: { type: 'string' } };
const schema = {
  body: {
    type: 'object',
    required: ['id', 'name'],
    properties: { id: { type: 'integer' }, ...plant },
  },
  response: { 200: { type: 'object', properties: plant } },
};

const app = Fastify();

app.addHook('onRequest', (request, reply, next) => {
  if (request.headers.authorization === AUTHORIZATION) next();
  else reply.code(401).send(UNAUTHORIZED);
});
app.setErrorHandler((error, request, reply) => reply.code(400).send(INVALID));
app.post('/plants', { schema }, (request, reply) => reply.send(request.body));

const url = await app.listen({ port: Number(PORT), host: '127.0.0.1', backlog: BACKLOG });
console.log(`listening on ${url}`);
