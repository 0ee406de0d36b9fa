import { createPlantHandler, openPlantLog } from 'plant-store';

const store = await openPlantLog('data/plants.jsonl');
const handler = createPlantHandler({ store, tokens: ['a-secret-token'] });

import middie from '@fastify/middie';
import fastify from 'fastify';

const app = fastify();
await app.register(middie);
app.use('/garden', handler);
await app.listen({ port: 8080 });
