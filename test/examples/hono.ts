import { createPlantHandler, openPlantLog } from 'plant-store';

const store = await openPlantLog('data/plants.jsonl');
const handler = createPlantHandler({ store, tokens: ['a-secret-token'] });

import { createServer } from 'node:http';
import { getRequestListener } from '@hono/node-server';
import { Hono } from 'hono';

const app = new Hono();
const listener = getRequestListener(app.fetch);
createServer((req, res) => handler(req, res, () => listener(req, res))).listen(8080);
