import { MIMEType } from 'node:util';

import { failures, type Failure } from './failures.js';
import type { PlantHandlerLimits } from './limits.js';
import { declaredLength, fieldLines, type HttpRequest } from './request.js';

/** RFC 9112, section 3.2: an origin-form target or, as a server must accept too, an absolute-form one. */
const PLANTS = /^(?:[Hh][Tt]{2}[Pp][Ss]?:\/\/[^/?#]*)?\/plants(?:\?|$)/;

/** Whether a request is for the path of the plants. */
export function isForPlants({ url = '' }: HttpRequest): boolean {
  return PLANTS.test(url);
}

/** What RFC 9112 forbids in any request, whatever it is for. */
export function protocolFailure(req: HttpRequest): Failure | undefined {
  // RFC 9113, section 8.3.1: HTTP/2 has a pseudo-header field for the host, and no transfer codings.
  if (req.httpVersionMajor > 1) return undefined;
  const isHttp10 = req.httpVersion === '1.0';
  // Section 3.2: one Host, which may be missing only from HTTP/1.0.
  const hosts = fieldLines(req, 'host');
  if (hosts.length > 1 || (hosts.length === 0 && !isHttp10)) return failures.host;
  if (!HOST.test(hosts[0] ?? '')) return failures.host;
  // RFC 9110, section 10.1.1. node:http looks for 100-continue among several expectations.
  const { expect } = req.headers;
  if (expect !== undefined && !isHttp10 && expect.toLowerCase() !== '100-continue')
    return failures.expectation;
  return undefined;
}

/** What RFC 3986, section 3.2.2 and 3.2.3, leaves for a host and a port. */
const HOST = /^[\w.~:[\]!$&'()*+,;=%-]*$/;

/** What the head of a request to create a plant already tells. */
export function headFailure(req: HttpRequest, limits: PlantHandlerLimits): Failure | undefined {
  const { method, headers } = req;
  if (method !== 'POST') return failures.method;
  if (!isJson(headers['content-type'])) return failures.mediaType;
  if (!isOnly('identity', headers['content-encoding'])) return failures.contentCoding;
  if (!isOnly('chunked', headers['transfer-encoding'])) return failures.transferCoding;
  if (declaredLength(req) > limits.maxBodyBytes) return failures.tooLarge(limits.maxBodyBytes);
  return undefined;
}

const JSON_TYPE = 'application/json';

function isJson(contentType = ''): boolean {
  if (contentType === JSON_TYPE) return true;
  try {
    const { essence, params } = new MIMEType(contentType);
    return essence === JSON_TYPE && /^utf-?8$/i.test(params.get('charset') ?? 'utf-8');
  } catch {
    return false;
  }
}

function isOnly(coding: string, header = coding): boolean {
  return header.toLowerCase() === coding;
}
