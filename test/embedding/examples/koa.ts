import { handler } from './handler.js';

import Koa from 'koa';

const app = new Koa();
app.use((ctx, next) => {
  ctx.respond = false;
  return handler(ctx.req, ctx.res, () => {
    ctx.respond = true;
    return next();
  });
});
app.listen(8080);
