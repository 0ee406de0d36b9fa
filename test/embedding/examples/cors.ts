import { handler } from './handler.js';

import { createServer } from 'node:http';
import cors from 'cors';

const setHeaders = cors({ origin: 'https://garden.example', exposedHeaders: ['Retry-After'] });
createServer((req, res) => setHeaders(req, res, () => void handler(req, res))).listen(8080);
