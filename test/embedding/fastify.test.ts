import { Validator } from '@seriousme/openapi-schema-validator';
import t from 'tap';

import { NewPlantSchema, PlantSchema } from '../../dist/index.js';
import { FERN } from '../client.js';
import { EMBEDDINGS, TOKEN } from './embeddings.js';
import { send, startApplication } from './application.js';

/** What the document warns of. */
const MISTAKES = [
  {
    name: 'the hook of a plugin without a route is not reached',
    lines: EMBEDDINGS.fastifyPluginWithoutRoute,
    answer: { status: 404, body: /Route POST:\/plants not found/ },
  },
  {
    name: 'the prefix of a plugin is not stripped',
    lines: EMBEDDINGS.fastifyPluginWithPrefix,
    path: '/garden/plants',
    answer: { status: 500, body: /the hook has passed it on/ },
  },
];

for (const { name, lines, path = '/plants', answer } of MISTAKES)
  t.test(`Fastify: ${name}`, async (t) => {
    const application = await startApplication(t, lines);
    t.match(await send(application, 'HTTP/1.1', { path, token: TOKEN, body: FERN }), answer);
  });

t.test('@fastify/rate-limit counts plants only with the documented hook', async (t) => {
  const statuses = async (lines: string): Promise<number[]> => {
    const application = await startApplication(t, lines);
    const message = { path: '/plants', token: TOKEN, body: FERN };
    const answers = [];
    for (let n = 0; n < 5; n++) answers.push(await send(application, 'HTTP/1.1', message));
    return answers.map(({ status }) => status);
  };
  t.strictSame(await statuses(EMBEDDINGS.fastifyLimit), [200, 200, 200, 429, 429]);
  t.strictSame(await statuses(EMBEDDINGS.fastifyLimitOfRoutes), [200, 200, 200, 200, 200]);
});

t.test('@fastify/swagger describes the operation, which does not change the body', async (t) => {
  const application = await startApplication(t, EMBEDDINGS.fastifySwagger);
  const response = await fetch(`http://localhost:${application.port}/openapi.json`);
  const document = (await response.json()) as Record<string, object>;
  t.strictSame(await new Validator().validate(document), { valid: true });
  t.match(document.paths, {
    '/plants': {
      post: {
        requestBody: { content: { 'application/json': { schema: NewPlantSchema } } },
        responses: { 200: { content: { 'application/json': { schema: PlantSchema } } } },
      },
    },
  });
  const message = { path: '/plants', token: TOKEN, body: '{"id":"8","name":null}' };
  t.match(await send(application, 'HTTP/1.1', message), { status: 400, body: '{"error":422,' });
});
