import { handler, store } from './handler.js';

import express from 'express';
import { PlantStoreError } from 'plant-store';

const app = express();
app.use(handler);
app.get('/plants/:id', async (req, res) => {
  const { id } = req.params;
  // An id beyond 2^53 is exact as a bigint, and as text.
  if (!/^-?\d{1,19}$/.test(id) || BigInt.asIntN(64, BigInt(id)) !== BigInt(id)) {
    res.status(400).json({ error: 400, message: 'id: must be an int64' });
    return;
  }
  let plant;
  try {
    plant = await store.get(BigInt(id));
  } catch (error) {
    // The message has the path of the log, which is not for clients.
    console.error(error);
    if (error instanceof PlantStoreError && error.code === 'unavailable')
      res.status(503).set('Retry-After', '1').json({ error: 503, message: 'try again later' });
    else res.status(500).json({ error: 500, message: 'the plant cannot be read' });
    return;
  }
  if (!plant) {
    res.status(404).json({ error: 404, message: 'there is no plant with this id' });
    return;
  }
  const { id: exactId, ...members } = plant;
  res.type('json').send(`{"id":${exactId},${JSON.stringify(members).slice(1)}`);
});
app.listen(8080);
