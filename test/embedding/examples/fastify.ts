import { handler, store } from './handler.js';

import fastify from 'fastify';

const app = fastify();
app.addHook('onRequest', (request, reply, next) => {
  void handler(request.raw, reply.raw, next); // do not return the promise: Fastify would go on twice
});
app.addHook('onClose', () => store.close());
process.once('SIGTERM', () => app.close());
await app.listen({ port: 8080, host: '127.0.0.1' });
