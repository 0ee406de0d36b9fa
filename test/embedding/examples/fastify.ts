import { handler, store } from './handler.js';

import fastify from 'fastify';

const app = fastify();
// On the root instance, because the hook of a plugin runs only for the routes of the plugin.
app.addHook('onRequest', (request, reply, next) => {
  // Do not return the promise: Fastify would go on twice.
  void handler(request.raw, reply.raw, next);
});
app.addHook('onClose', () => store.close());
process.once('SIGTERM', () => app.close());
// Without a host, Fastify 5.12 crashes if it is closed while it resolves `localhost`.
await app.listen({ port: 8080, host: '127.0.0.1' });
