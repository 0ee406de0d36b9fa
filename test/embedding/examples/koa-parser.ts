import { handler } from './handler.js';

import { bodyParser } from '@koa/bodyparser';
import Koa from 'koa';

const app = new Koa();
// `patchNode` gives the handler the bytes of the body. An id beyond 2^53 is not exact without them.
app.use(bodyParser({ patchNode: true }));
app.use((ctx, next) => {
  ctx.respond = false;
  return handler(ctx.req, ctx.res, () => {
    ctx.respond = true;
    return next();
  });
});
app.use((ctx, next) => {
  if (ctx.path !== '/plants') return next();
  ctx.body = `application: ${ctx.method}`;
  return undefined;
});
app.listen(8080);
