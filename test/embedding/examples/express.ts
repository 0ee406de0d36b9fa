// server.mjs
import express from 'express';
import { createPlantHandler, openPlantLog } from 'plant-store';

const store = await openPlantLog('data/plants.jsonl');
const app = express();
app.use(createPlantHandler({ store, tokens: ['a-secret-token'] })); // before express.json()
const server = app.listen(8080);

process.once('SIGTERM', () => server.close(() => store.close()));
