import { failures, type Failure } from './failures.js';
import type { PlantHandlerLimits } from './limits.js';
import { declaredLength, isRepeated, type HttpRequest } from './request.js';

/**
 * Why the body of a request is refused before it is read: because of its media type, its codings,
 * or its length.
 */
export function contentFailure(req: HttpRequest, limits: PlantHandlerLimits): Failure | undefined {
  const { headers } = req;
  if (isRepeated(req, 'content-type') || !isJson(headers['content-type']))
    return failures.mediaType;
  if (!isAbsentOr('identity', headers['content-encoding'])) return failures.contentCoding;
  if (!isAbsentOr('chunked', headers['transfer-encoding'])) return failures.transferCoding;
  if (declaredLength(req) > limits.maxBodyBytes) return failures.tooLarge(limits.maxBodyBytes);
  return undefined;
}

/**
 * RFC 9110, section 8.3.1. RFC 8259 defines no parameters: all are ignored, but a charset other
 * than UTF-8 is refused.
 */
const JSON_TYPE = /^application\/json[\t ]*(?:;|$)/i;
const OTHER_CHARSET = /;[\t ]*charset=(?!"?utf-?8"?[\t ]*(?:;|$))/i;

function isJson(contentType = ''): boolean {
  // What most clients send needs neither expression.
  if (contentType === 'application/json') return true;
  return JSON_TYPE.test(contentType) && !OTHER_CHARSET.test(contentType);
}

function isAbsentOr(coding: string, header: string | undefined): boolean {
  return header === undefined || header.toLowerCase() === coding;
}
