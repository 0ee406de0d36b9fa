import { block, blocks } from '../readme.js';

/** The handler of the README. */
export const HANDLER = block('Embedding', 'ts');

/** A server of node:http that shuts down in order. */
export const HTTP = block('In a server of Node, with an orderly shutdown', 'ts');

const [EXPRESS = '', FASTIFY = '', KOA = ''] = blocks('In Express, Fastify and Koa', 'ts');
const [FASTIFY_CORS = '', HONO_CORS = ''] = blocks('CORS, for browsers', 'ts');

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
  fastifyRoute: FASTIFY.replace(/^app\.addHook[^]*?^\}\);\n/m, block('Fastify, as a route', 'ts')),
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
