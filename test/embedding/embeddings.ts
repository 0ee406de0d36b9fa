import { block, blocks } from '../readme.js';

/** The token that the README's handler accepts. */
export const TOKEN = 'a-secret-token';

/** The handler of the README. */
export const HANDLER = block('Embedding', 'ts');

/** A server of node:http that shuts down in order. */
export const HTTP = block('In a server of Node, with an orderly shutdown', 'ts');

const [EXPRESS = '', FASTIFY = '', KOA = ''] = blocks('In Express, Fastify and Koa', 'ts');
const [FASTIFY_CORS = '', HONO_CORS = ''] = blocks('CORS, for browsers', 'ts');
const FASTIFY_ROUTE = block('Fastify, as a route', 'ts');

/** The lines of the README that add the handler to Fastify as a hook. */
const FASTIFY_HOOK = /^app\.addHook[^]*?^\}\);\n/m;

const NEVER_REACHED = `app.post('/plants', () => {
  throw new Error('the hook has passed it on');
});
`;

/** A Fastify application with a plugin that has the hook and a route. */
const inPlugin = (route: string, options = '{}'): string =>
  FASTIFY.replace(FASTIFY_HOOK, `await app.register(async (app) => {\n$&${route}}, ${options});\n`);

const TLS = `import { readFileSync } from 'node:fs';
const tls = { cert: readFileSync('cert.pem'), key: readFileSync('key.pem') };
`;

/** Programs that mount that handler: those of the README, and others for the servers that it names. */
export const EMBEDDINGS = {
  http: HTTP,
  https:
    TLS + HTTP.replace('node:http', 'node:https').replace('createServer(', 'createServer(tls, '),
  http2: `${TLS}
import { createSecureServer } from 'node:http2';
createSecureServer({ ...tls, allowHTTP1: true }, handler).listen(8443);
`,
  otherRoutes: HTTP.replace(
    'createServer(handler)',
    "createServer((req, res) => handler(req, res, () => res.end('hello')))",
  ),
  express: EXPRESS.replace(
    'app.listen',
    `app.use('/garden', handler);
app.use(express.json());
app.use('/parsed', handler);
$&`,
  ),
  connect: `import connect from 'connect';
const app = connect();
app.use(handler);
app.listen(8080);
`,
  fastifyHook: FASTIFY,
  fastifyRoute: FASTIFY.replace(FASTIFY_HOOK, FASTIFY_ROUTE),
  fastifyRouteWithSchema: FASTIFY.replace(
    FASTIFY_HOOK,
    FASTIFY_ROUTE.replace("'/plants', ", '$&{ schema }, '),
  ).replace(
    /^/,
    `import { ErrorSchema, NewPlantSchema } from 'plant-store';
const schema = { body: NewPlantSchema, response: { 400: ErrorSchema } };
`,
  ),
  fastifyPlugin: inPlugin(NEVER_REACHED),
  fastifyPluginWithPrefix: inPlugin(NEVER_REACHED, "{ prefix: '/garden' }"),
  fastifyPluginWithoutRoute: inPlugin(''),
  fastifyMiddie: FASTIFY.replace(
    FASTIFY_HOOK,
    `await app.register(middie);
app.use(handler);
app.use('/garden', handler);
`,
  ).replace(/^/, "import middie from '@fastify/middie';\n"),
  fastifySwagger: block('Fastify, with `@fastify/swagger`', 'ts'),
  hono: block('Hono', 'ts'),
  expressCors: EXPRESS.replace(
    'app.use(handler)',
    "app.use(cors({ origin: 'https://garden.example' }));\n$&",
  ).replace(/^/, "import cors from 'cors';\n"),
  fastifyCors: FASTIFY_CORS,
  honoCors: HONO_CORS,
  koa: KOA,
  koaAfterParser: KOA.replace(/^/, "import { bodyParser } from '@koa/bodyparser';\n").replace(
    /^app\.use[^]*?^\}\);\n/m,
    `app.use(bodyParser());\n${block('Koa, after a body parser', 'ts')}`,
  ),
};
