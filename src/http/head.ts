import type { Server } from 'node:http';
import { isIPv6 } from 'node:net';
import { MIMEType } from 'node:util';

import { failures, type Failure } from './failures.js';
import { MAX_CONTENT_TYPE, MAX_HEADER_LINES, type PlantHandlerLimits } from './limits.js';
import { declaredLength, isHttp2, isRepeated, type HttpRequest } from './request.js';

/** RFC 9112, section 3.2: an origin-form target or, as a server must accept too, an absolute-form one. */
const PLANTS = /^(?:[Hh][Tt]{2}[Pp][Ss]?:\/\/[^/?#]*)?\/plants(?:\?|$)/;

/** Whether a request is for the path of the plants. */
export function isForPlants({ url = '' }: HttpRequest): boolean {
  return PLANTS.test(url);
}

/** Why a request fails, whatever its path is: HTTP forbids it, or it has too many header lines. */
export function protocolFailure(req: HttpRequest): Failure | undefined {
  if (hasTooManyLines(req)) return failures.headersTooLarge;
  // RFC 9113, section 8.3.1: HTTP/2 has a pseudo-header field for the host, and no transfer codings.
  if (isHttp2(req)) return undefined;
  // The parser of node:http accepts the versions 0.9 and 2.0, too.
  const { httpVersion = '1.1' } = req;
  if (!httpVersion.startsWith('1.')) return failures.malformed;
  const isHttp10 = httpVersion === '1.0';
  // RFC 9112, section 6.1: the framing of such a message is faulty.
  if (isHttp10 && req.headers['transfer-encoding'] !== undefined)
    return failures.http10TransferCoding;
  // RFC 9112, section 3.2: one Host, which may be missing only in HTTP/1.0.
  const { host, expect } = req.headers;
  if (isRepeated(req, 'host') || (host === undefined && !isHttp10)) return failures.host;
  if (!isHost(host ?? '') || !isTarget(req.url ?? '')) return failures.host;
  // RFC 9110, section 10.1.1. For node:http, a list of expectations may contain 100-continue.
  if (expect !== undefined && !isHttp10 && expect.toLowerCase() !== '100-continue')
    return failures.expectation;
  return undefined;
}

/** Whether there are more header lines than the handler accepts, or node:http may have dropped some. */
function hasTooManyLines({ rawHeaders = [], socket }: HttpRequest): boolean {
  // node:http keeps this many names and values and drops the others (Node 20; later releases refuse the
  // request).
  const kept = ((socket.server as Partial<Server> | undefined)?.maxHeadersCount ?? 0) << 1;
  return rawHeaders.length > 2 * MAX_HEADER_LINES || (kept > 0 && rawHeaders.length >= kept);
}

/** RFC 3986, sections 3.2.2 and 3.2.3: a name or an IPv4 address, or an IP literal, and a port. */
const HOST = /^(?:\[([^\]]*)\]|(?:[\w.~!$&'()*+,;=-]|%[\da-f]{2})*)(?::\d*)?$/i;
const IP_FUTURE = /^v[\da-f]+\.[\w.~!$&'()*+,;=:-]+$/i;

function isHost(host: string): boolean {
  const match = HOST.exec(host);
  if (!match) return false;
  const [, literal] = match;
  if (literal === undefined) return true;
  // isIPv6 accepts a zone, which a URI must not have.
  return (isIPv6(literal) && !literal.includes('%')) || IP_FUTURE.test(literal);
}

const ABSOLUTE_FORM = /^https?:\/\/(?:[^/?#]*@)?([^/?#]*)/i;

/** RFC 9110, section 4.2.1: the host of an http URI must not be empty. */
function isTarget(target: string): boolean {
  if (target.startsWith('/')) return true;
  const [, authority] = ABSOLUTE_FORM.exec(target) ?? [];
  return authority === undefined || (/^[^:]/.test(authority) && isHost(authority));
}

/** Why a request fails at the path of the plants because of its method. */
export function methodFailure({ method }: HttpRequest): Failure | undefined {
  return method === 'POST' ? undefined : failures.method;
}

/** Why a request to create a plant fails, as far as its head describes its content. */
export function contentFailure(req: HttpRequest, limits: PlantHandlerLimits): Failure | undefined {
  const { headers } = req;
  if (isRepeated(req, 'content-type') || !isJson(headers['content-type']))
    return failures.mediaType;
  if (!isAbsentOr('identity', headers['content-encoding'])) return failures.contentCoding;
  if (!isAbsentOr('chunked', headers['transfer-encoding'])) return failures.transferCoding;
  if (declaredLength(req) > limits.maxBodyBytes) return failures.tooLarge(limits.maxBodyBytes);
  return undefined;
}

const JSON_TYPE = 'application/json';

function isJson(contentType = ''): boolean {
  if (contentType === JSON_TYPE) return true;
  // MIMEType takes time that grows with the square of the length (Node 20 to 26).
  if (contentType.length > MAX_CONTENT_TYPE) return false;
  try {
    const { essence, params } = new MIMEType(contentType);
    return essence === JSON_TYPE && /^utf-?8$/i.test(params.get('charset') ?? 'utf-8');
  } catch {
    return false;
  }
}

function isAbsentOr(coding: string, header: string | undefined): boolean {
  return header === undefined || header.toLowerCase() === coding;
}
