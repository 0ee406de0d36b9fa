import { handler } from './handler.js';

import { createServer } from 'node:http';
import { getRequestListener } from '@hono/node-server';
import { Hono } from 'hono';

const app = new Hono();
const listener = getRequestListener(app.fetch);
createServer((req, res) => handler(req, res, () => listener(req, res))).listen(8080);

app.all('/plants', (c) => c.text(`application: ${c.req.method}`));
