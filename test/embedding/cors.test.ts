import t from 'tap';

import { EMBEDDINGS, TOKEN } from './embeddings.js';
import { startApplication } from './application.js';

const PAGE = 'https://garden.example';

const REQUESTS = [
  { path: '/plants', token: TOKEN, body: '{"id":7,"name":"fern"}', status: 200 },
  { path: '/plants', token: TOKEN, body: '{"id":7,"name":null}', status: 400 },
  { path: '/plants', token: 'wrong', body: '{"id":7,"name":"fern"}', status: 401 },
  { path: '/elsewhere', token: TOKEN, body: '{}', status: 404 },
];

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

    for (const { path, token, body, status } of REQUESTS) {
      const Authorization = `Bearer ${token}`;
      const headers = { Origin: PAGE, Authorization, 'Content-Type': 'application/json' };
      const answer = await fetch(url + path, { method: 'POST', headers, body });
      t.equal(answer.status, status);
      t.equal(answer.headers.get('access-control-allow-origin'), PAGE);
      await answer.text();
    }
  });
