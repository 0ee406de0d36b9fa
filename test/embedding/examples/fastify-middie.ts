import { handler } from './handler.js';

import middie from '@fastify/middie';
import fastify from 'fastify';

const app = fastify();
await app.register(middie);
app.use('/garden', handler);
app.all('/garden/plants', ({ method }) => `application: ${method}`);
await app.listen({ port: 8080, host: '127.0.0.1' });
