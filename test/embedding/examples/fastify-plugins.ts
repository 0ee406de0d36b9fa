import { handler, store } from './handler.js';

import cors from 'cors';
import fastify from 'fastify';

const app = fastify();
const setHeaders = cors({ origin: 'https://garden.example', exposedHeaders: ['Retry-After'] });

import rateLimit from '@fastify/rate-limit';
import swagger from '@fastify/swagger';
import { openapi } from 'plant-store';

app.addHook('onRequest', ({ raw }, reply, next) => setHeaders(raw, reply.raw, next));

await app.register(rateLimit, { global: false, max: 100, timeWindow: '1 minute' });
app.addHook('onRequest', app.rateLimit());

const post = { ...openapi.paths['/plants'].post, security: openapi.security };
await app.register(swagger, {
  openapi: { openapi: '3.1.1', components: openapi.components, paths: { '/plants': { post } } },
});

app.addHook('onRequest', (request, reply, next) => {
  void handler(request.raw, reply.raw, next);
});
app.addHook('onClose', () => store.close());
process.once('SIGTERM', () => app.close());
app.get('/openapi.json', () => app.swagger());
await app.listen({ port: 8080 });
