import { block, blocks, codeSpans, read } from '../readme.js';

/** The token that the documented handler accepts. */
export const TOKEN = 'a-secret-token';

/** The handler of the document. */
const HANDLER = block('Embedding', 'ts');

/** A server of node:http that shuts down in order. */
const HTTP = block('An orderly shutdown', 'ts');

const EXPRESS = block('In your application', 'js');
const [FASTIFY = '', FASTIFY_LIMIT = ''] = blocks('Fastify', 'ts');
const HONO = block('Hono', 'ts');
const KOA = block('Koa', 'ts');

const SPANS = codeSpans(read('.github/EMBEDDING.md').replace(/^```[^]*?^```$/gm, ''));
const span = (start: string): string => SPANS.find((code) => code.startsWith(start)) ?? '';

/** The documented function that takes the place of the handler. */
const CORS = block('CORS, for browsers', 'ts');
const useCors = (lines: string): string =>
  HANDLER + CORS + lines.replaceAll(/\bhandler\b/g, 'withCors');

/** The Express application of the README, with the handler mounted like this. */
const mountInExpress = (lines: string): string =>
  EXPRESS.replace(/^app\.use\((createPlantHandler\(.*\))\);.*$/m, `const handler = $1;\n${lines}`);

/** The documented Fastify application with these lines in place of its hook, for which `$&` stands. */
const inFastify = (lines: string): string =>
  HANDLER + FASTIFY.replace(/^app\.addHook[^]*?^\}\);\n/m, lines);

/** A Fastify application with a plugin that has the hook and a route. */
const inPlugin = (lines: string, options = '{}'): string =>
  inFastify(`await app.register(async (app) => {\n$&${lines}}, ${options});\n`);

/** A route that is never reached, with these options. */
const route = (options = '{}'): string => `app.post('/plants', ${options}, () => {
  throw new Error('the hook has passed it on');
});
`;

const TLS = `import { readFileSync } from 'node:fs';
const tls = { cert: readFileSync('cert.pem'), key: readFileSync('key.pem') };
`;

/** Programs that mount the handler: those of the documents, and others for the servers that they name. */
export const EMBEDDINGS = {
  http: HANDLER + HTTP,
  https:
    HANDLER +
    TLS +
    HTTP.replace('node:http', 'node:https').replace('createServer(', 'createServer(tls, '),
  http2: `${HANDLER}${TLS}
import { createSecureServer } from 'node:http2';
createSecureServer({ ...tls, allowHTTP1: true }, handler).listen(8443);
`,
  ownAuthentication:
    HANDLER +
    HTTP.replace(
      'createServer(handler)',
      `createServer((req, res) => {
  ${span('req.headers.authorization = ')};
  void handler(req, res);
})`,
    ),
  express: EXPRESS,
  expressElsewhere: mountInExpress(`app.use('/garden', handler);
app.use(express.json());
app.use('/parsed', handler);`),
  expressCors: mountInExpress(`${CORS}\napp.use(withCors);`),
  connect: `${HANDLER}import connect from 'connect';
const app = connect();
app.use(handler);
app.listen(8080);
`,
  fastifyHook: inFastify('$&'),
  fastifyLimit: inFastify(`${FASTIFY_LIMIT.replace('max: 100', 'max: 3')}$&`),
  fastifyLimitOfRoutes: inFastify(
    `${FASTIFY_LIMIT.replace('global: false, max: 100', 'max: 3').replace(/^app\.addHook.*\n/m, '')}$&`,
  ),
  fastifyPlugin: inPlugin(route()),
  fastifyPluginWithPrefix: inPlugin(route(), "{ prefix: '/garden' }"),
  fastifyPluginWithoutRoute: inPlugin(''),
  fastifyMiddie: inFastify(`import middie from '@fastify/middie';
await app.register(middie);
app.use(handler);
app.use('/garden', handler);
`),
  fastifySwagger: inFastify(`import swagger from '@fastify/swagger';
import { ErrorSchema, NewPlantSchema, PlantSchema } from 'plant-store';
await app.register(swagger, { openapi: { openapi: '3.1.1' } });
app.addSchema({ $id: 'Error', ...ErrorSchema });
$&const error = { $ref: 'Error#' };
const response = { 200: PlantSchema, '4xx': error, '5xx': error };
${route('{ schema: { body: NewPlantSchema, response } }')}app.get('/openapi.json', () => app.swagger());
`),
  fastifyCors: useCors(FASTIFY),
  hono: HANDLER + HONO,
  honoMiddleware:
    HANDLER +
    HONO.replace('const listener', "app.use(async (c) => c.text('by a middleware', 429));\n$&"),
  honoCors: useCors(HONO),
  koa: HANDLER + KOA,
  koaAfterParser:
    HANDLER +
    KOA.replace(
      'app.use',
      "import { bodyParser } from '@koa/bodyparser';\napp.use(bodyParser());\n$&",
    ).replace('ctx.req,', `${span('Object.assign(ctx.req')},`),
};
