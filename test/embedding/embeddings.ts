import { block, blocks } from '../readme.js';

/** A handler, as the README makes it. */
export const HANDLER = block('Embedding', 'ts');

const [HTTP = '', OTHER_ROUTES = ''] = blocks('HTTP', 'ts');
const HTTP2 = block('HTTPS and HTTP/2', 'ts');
const [FASTIFY = '', FASTIFY_ROUTE = ''] = blocks('Fastify', 'ts');
const [KOA = '', KOA_AFTER_PARSER = ''] = blocks('Koa', 'ts');

/** Programs that put that handler into a server in the ways that the README shows. */
export const EMBEDDINGS = {
  http: HTTP,
  https: HTTP2.replace('createSecureServer', 'createServer')
    .replace('node:http2', 'node:https')
    .replace('createSecureServer({ ...tls, allowHTTP1: true }', 'createServer(tls'),
  http2: HTTP2,
  otherRoutes: HTTP.replace(/^createServer.*\n/m, OTHER_ROUTES),
  express: block('Express', 'ts'),
  connect: `import connect from 'connect';
const app = connect();
app.use(handler);
app.listen(8080);
`,
  fastifyHook: FASTIFY,
  fastifyRoute: FASTIFY.replace(/^app\.addHook.*\n/m, FASTIFY_ROUTE),
  koa: KOA,
  koaAfterParser: KOA.replace(/^/, `import { bodyParser } from '@koa/bodyparser';\n`)
    .replace('new Koa();\n', `$&app.use(bodyParser());\n`)
    .replace(/^ *return handler.*\n/m, KOA_AFTER_PARSER),
};
