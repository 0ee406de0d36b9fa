import { failures, type Failure } from './failures.js';
import { MAX_HEADER_LINES } from './limits.js';
import { isHttp2, isRepeated, type HttpRequest } from './request.js';

/** The characters of RFC 3986, sections 3.2.2 and 3.2.3. Nothing depends on which host is named. */
const HOST = /^[\w.~!$&'()*+,;=:%[\]-]*$/;

/** Why a request fails at any path: HTTP forbids it, or it has too many header lines. */
export function protocolFailure(req: HttpRequest): Failure | undefined {
  // Names and values alternate.
  if (req.rawHeaders && req.rawHeaders.length > 2 * MAX_HEADER_LINES)
    return failures.headersTooLarge;
  // RFC 9113, section 8.3.1: HTTP/2 has a pseudo-header field for the host. It has no transfer
  // codings, and node:http2 itself refuses other expectations than 100-continue.
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
  if (!HOST.test(host ?? '')) return failures.host;
  // RFC 9110, section 10.1.1. node:http takes a list that contains 100-continue for 100-continue
  // alone.
  if (expect !== undefined && !isHttp10 && expect.toLowerCase() !== '100-continue')
    return failures.expectation;
  return undefined;
}
