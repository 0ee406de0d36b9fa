import { handler } from './handler.js';

import middie from '@fastify/middie';
import fastify from 'fastify';

const app = fastify();
await app.register(middie);
app.use('/garden', handler);
await app.listen({ port: 8080 });
