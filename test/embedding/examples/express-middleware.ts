import { handler, store } from './handler.js';

import cors from 'cors';
import express from 'express';

const app = express();
app.use(cors({ origin: 'https://garden.example', exposedHeaders: ['Retry-After'] }));
// The application authenticates the client, and sets a token of the handler.
app.use((req, _, next) => {
  if (req.headers.cookie === 'gardener=1') req.headers.authorization = 'Bearer a-secret-token';
  next();
});
// The handler uses these bytes. An id beyond 2^53 is not exact in the parsed body.
app.use(
  express.json({ limit: '1mb', verify: (req, _, rawBody) => Object.assign(req, { rawBody }) }),
);
app.use('/garden', handler);
app.all('/garden/plants', (req, res) => void res.send(`application: ${req.method}`));
const server = app.listen(8080);

process.once('SIGTERM', () => server.close(() => store.close()));
