import { handler } from './handler.js';

import { bodyParser } from '@koa/bodyparser';
import Koa from 'koa';

const app = new Koa();
app.use(bodyParser({ patchNode: true }));
app.use((ctx, next) => {
  if (ctx.path !== '/plants') return next();
  ctx.respond = false;
  return handler(ctx.req, ctx.res);
});
app.listen(8080);
