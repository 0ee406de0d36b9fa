import { createPlantHandler, openPlantLog } from 'plant-store';

const store = await openPlantLog('data/plants.jsonl');
const handler = createPlantHandler({ store, tokens: ['a-secret-token'] });

import fastify from 'fastify';

const app = fastify();
app.addHook('onRequest', (request, reply, next) => {
  void handler(request.raw, reply.raw, next); // do not return the promise: Fastify would go on twice
});
app.addHook('onClose', () => store.close());
await app.listen({ port: 8080 });

process.once('SIGTERM', () => void app.close());
