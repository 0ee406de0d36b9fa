import { Compile } from 'typebox/schema';

import { openapi } from '../../dist/index.js';

/** An answer as a client receives it, with header names in lower case. */
export interface Received {
  readonly status: number;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly body: string;
}

/**
 * Throws unless the OpenAPI document describes the status, the headers and the body of an answer.
 * The body of an answer to a HEAD may be empty.
 */
export function expectConformance({ status, headers, body }: Received, method = 'POST'): void {
  const response = responses[status];
  if (!response) throw new Error(`the OpenAPI document has no answer with the status ${status}`);

  const [mediaType = ''] = Object.keys(response.content);
  if (headers['content-type'] !== mediaType)
    throw new Error(`an answer with the status ${status} is not ${mediaType}`);

  for (const name of Object.keys(response.headers ?? {}))
    if (!(name.toLowerCase() in headers))
      throw new Error(`an answer with the status ${status} has no ${name}`);

  if (method === 'HEAD' && body === '') return;
  const [valid, faults] = bodyOf(status, mediaType).Errors(JSON.parse(body));
  if (!valid) throw new Error(`status ${status}, ${body}: ${JSON.stringify(faults)}`);
}

interface Response {
  readonly headers?: object;
  readonly content: Readonly<Record<string, unknown>>;
}

const responses = openapi.paths['/plants'].post.responses as Readonly<Record<number, Response>>;

/**
 * The part of typebox's `Validator` that is used here. Compiling its full type would take seconds.
 */
interface Schema {
  Errors(value: unknown): [valid: boolean, faults: object[]];
}

const bodies = new Map<number, Schema>();

function bodyOf(status: number, mediaType: string): Schema {
  const pointer = `/paths/~1plants/post/responses/${status}/content/${mediaType.replace('/', '~1')}`;
  const schema: Schema = bodies.get(status) ?? Compile({ ...openapi, $ref: `#${pointer}/schema` });
  bodies.set(status, schema);
  return schema;
}
