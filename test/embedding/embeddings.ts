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
  `${CORS}\n${lines.replaceAll(/\bhandler\b/g, 'withCors')}`;

/** The Express application of the README, with the handler mounted like this. */
const mountInExpress = (lines: string): string =>
  EXPRESS.replace(/^app\.use\((createPlantHandler\(.*\))\);.*$/m, `const handler = $1;\n${lines}`);

/** The documented lines that add the handler to Fastify as a hook. */
const FASTIFY_HOOK = /^app\.addHook[^]*?^\}\);\n/m;

const NEVER_REACHED = `app.post('/plants', () => {
  throw new Error('the hook has passed it on');
});
`;

const SWAGGER = `await app.register(swagger, { openapi: { openapi: '3.1.1' } });
app.addSchema({ $id: 'Error', ...ErrorSchema });
`;
const ROUTE_FOR_SWAGGER = `const error = { $ref: 'Error#' };
const response = { 200: PlantSchema, '4xx': error, '5xx': error };
app.post('/plants', { schema: { body: NewPlantSchema, response } }, () => {
  throw new Error('the hook has passed it on');
});
app.get('/openapi.json', () => app.swagger());
`;
const IMPORTS_FOR_SWAGGER = `import swagger from '@fastify/swagger';
import { ErrorSchema, NewPlantSchema, PlantSchema } from 'plant-store';
`;

/** A Fastify application with a plugin that has the hook and a route. */
const inPlugin = (route: string, options = '{}'): string =>
  FASTIFY.replace(FASTIFY_HOOK, `await app.register(async (app) => {\n$&${route}}, ${options});\n`);

const TLS = `import { readFileSync } from 'node:fs';
const tls = { cert: readFileSync('cert.pem'), key: readFileSync('key.pem') };
`;

/** What follows the lines of the handler. */
const EMBEDDED = {
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
  ownAuthentication: HTTP.replace(
    'createServer(handler)',
    `createServer((req, res) => {
  ${span('req.headers.authorization = ')};
  void handler(req, res);
})`,
  ),
  connect: `import connect from 'connect';
const app = connect();
app.use(handler);
app.listen(8080);
`,
  fastifyHook: FASTIFY,
  fastifyLimit: FASTIFY.replace(FASTIFY_HOOK, `${FASTIFY_LIMIT.replace('max: 100', 'max: 3')}$&`),
  fastifyLimitOfRoutes: FASTIFY.replace(
    FASTIFY_HOOK,
    `${FASTIFY_LIMIT.replace(/global: false, max: 100/, 'max: 3').replace(/^app\.addHook.*\n/m, '')}$&`,
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
  fastifySwagger:
    IMPORTS_FOR_SWAGGER + FASTIFY.replace(FASTIFY_HOOK, `${SWAGGER}$&${ROUTE_FOR_SWAGGER}`),
  hono: HONO,
  honoMiddleware: HONO.replace(
    'const listener',
    "app.use(async (c) => c.text('by a middleware', 429));\n$&",
  ),
  koa: KOA,
  koaAfterParser: KOA.replace(/^/, "import { bodyParser } from '@koa/bodyparser';\n")
    .replace('app.use', 'app.use(bodyParser());\n$&')
    .replace('ctx.req,', `${span('Object.assign(ctx.req')},`),
  fastifyCors: useCors(FASTIFY),
  honoCors: useCors(HONO),
};

/** Puts the lines of the handler before those of each application. */
const withHandler = <Name extends string>(embedded: Record<Name, string>): Record<Name, string> =>
  Object.fromEntries(
    Object.entries<string>(embedded).map(([name, lines]) => [name, `${HANDLER}\n${lines}`]),
  ) as Record<Name, string>;

/** Programs that mount the handler: those of the documents, and others for the servers that they name. */
export const EMBEDDINGS = {
  ...withHandler(EMBEDDED),
  express: EXPRESS,
  expressElsewhere: mountInExpress(`app.use('/garden', handler);
app.use(express.json());
app.use('/parsed', handler);`),
  expressCors: mountInExpress(`${CORS}\napp.use(withCors);`),
};
