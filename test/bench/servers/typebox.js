/** A minimal server that could check bodies: loads node:http and typebox, and listens. */

import { createServer } from 'node:http';
import 'typebox/schema';

const server = createServer((_req, res) => res.end());
server.listen(0, '127.0.0.1', () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}`);
});
