import t from 'tap';
import { Compile } from 'typebox/schema';

import { ErrorSchema, failures, type Failure } from '../../dist/http/failures.js';

const isError = Compile(ErrorSchema);

t.test('the body of every failure conforms to the Error schema', async (t) => {
  for (const [name, failure] of Object.entries(failures)) {
    const make = failure as Failure | ((about: unknown) => Failure);
    const { status, error, body, headers } = typeof make === 'function' ? make(['a fault']) : make;
    t.ok(isError.Check(JSON.parse(body)), name);
    t.match(JSON.parse(body), { error }, name);
    t.ok(status === error || status === 400, `${name}: ${status} with ${error}`);
    t.equal('WWW-Authenticate' in headers, status === 401, `${name}: 401 names the scheme`);
    t.equal('Allow' in headers, status === 405, `${name}: 405 names the method`);
    t.equal('Retry-After' in headers, status === 503, `${name}: 503 has Retry-After`);
  }
});
