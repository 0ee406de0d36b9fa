import t from 'tap';

import { FERN } from '../client.js';
import { EMBEDDINGS, TOKEN } from './embeddings.js';
import { startApplication } from './application.js';

const PAGE = 'https://garden.example';

const APPLICATIONS = {
  Express: EMBEDDINGS.expressCors,
  Fastify: EMBEDDINGS.fastifyCors,
  Hono: EMBEDDINGS.honoCors,
};

for (const [framework, lines] of Object.entries(APPLICATIONS))
  t.test(`${framework}: a page of another origin can send plants and read answers`, async (t) => {
    const { port } = await startApplication(t, lines);
    const url = `http://localhost:${port}`;

    const preflight = await fetch(`${url}/plants`, {
      method: 'OPTIONS',
      headers: {
        Origin: PAGE,
        'Access-Control-Request-Method': 'POST',
        'Access-Control-Request-Headers': 'authorization,content-type',
      },
    });
    t.ok(preflight.ok);
    t.equal(preflight.headers.get('access-control-allow-origin'), PAGE);
    t.match(preflight.headers.get('access-control-allow-methods'), /\bPOST\b/);
    t.equal(preflight.headers.get('access-control-allow-headers'), 'authorization,content-type');

    for (const [path, token, status] of [
      ['/plants', TOKEN, 200],
      ['/plants', 'wrong', 401],
      ['/elsewhere', TOKEN, 404],
    ] as const) {
      const Authorization = `Bearer ${token}`;
      const headers = { Origin: PAGE, Authorization, 'Content-Type': 'application/json' };
      const answer = await fetch(url + path, { method: 'POST', headers, body: FERN });
      t.equal(answer.status, status);
      t.equal(answer.headers.get('access-control-allow-origin'), PAGE);
      await answer.text();
    }
  });
