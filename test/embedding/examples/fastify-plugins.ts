import { handler, store } from './handler.js';

import cors from 'cors';
import fastify from 'fastify';

const app = fastify();
const setHeaders = cors({ origin: 'https://garden.example', exposedHeaders: ['Retry-After'] });

import rateLimit from '@fastify/rate-limit';
import swagger from '@fastify/swagger';
import { openapi } from 'plant-store';

app.addHook('onRequest', ({ raw }, reply, next) => setHeaders(raw, reply.raw, next));

// Requests for plants reach no route, so plugins that work on routes do not see them.
await app.register(rateLimit, { global: false });
const countPlant = app.createRateLimit({ max: 100, timeWindow: '1 minute' });
app.addHook('onRequest', async (request, reply) => {
  if (request.method !== 'POST' || !/\/plants(\?|$)/.test(request.url)) return;
  const limit = await countPlant(request);
  if (limit.isAllowed || !limit.isExceeded) return;
  const body = { error: 429, message: 'too many plants; send this one again later' };
  return reply.code(429).header('Retry-After', limit.ttlInSeconds).send(body);
});

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
app.all('/plants', { schema: { hide: true } }, ({ method }) => `application: ${method}`);
await app.listen({ port: 8080, host: '127.0.0.1' });
