/**
 * A `fetch` for plants, in browsers and Node. It sends a request again until there is an answer
 * that is not temporary. After six attempts, it resolves to the last answer, or rejects with the
 * last error. Then the plant may have been stored: send it again later, unchanged.
 *
 * It resolves to a 200 only if the plant is stored: a proxy can answer 200 with a page of its own.
 *
 * It follows no redirect, which leads to a page such as a login, whose 200 is no plant. The answer
 * with the redirect has the status 0 in browsers, and its own, such as 302, in Node.
 *
 * If the `error` of a last answer is 400, 409, 413 or 422, or its status 413, the fault is in the
 * plant. After another one, such as a redirect or a 401, or a bad certificate, the next plant would
 * be refused too.
 *
 * All attempts together can take two minutes, or seven if a proxy asks for pauses with
 * `Retry-After`: show that the plant is still being sent. Before the first attempt, save the plant
 * with its id, in a page in `sessionStorage`, and keep it until the 200. After a reload or a crash,
 * send it from there: with another id, it would be another plant.
 *
 * If a private authority has signed the certificate of the service, set NODE_EXTRA_CA_CERTS=ca.pem.
 * Node 22.18 and later run this file as it is. Node 20 needs it compiled to JavaScript.
 *
 * @example In a page, whose proxy adds the token. `plant` is JSON, such as `bodySerializer` in
 * src/http/README.md makes with any id:
 * ```ts
 * const headers = { 'Content-Type': 'application/json' };
 * const request = new Request('/plants', { method: 'POST', headers, body: plant });
 * const isStored = (await fetchWithRetries(request)).status === 200;
 * ```
 */
export async function fetchWithRetries(request: Request): Promise<Response> {
  for (let attempt = 1; ; attempt++) {
    let pause = 2 ** (attempt - 1);
    // `AbortSignal.timeout` in `AbortSignal.any` may never expire: Node 20 collects it as garbage.
    const limit = new AbortController();
    const reason = new DOMException('no answer within 15 s', 'TimeoutError');
    const timer = setTimeout(() => limit.abort(reason), 15_000);
    const onAbort = () => limit.abort(request.signal.reason);
    request.signal.addEventListener('abort', onAbort);
    try {
      request.signal.throwIfAborted();
      // The clone has the body. A request can be sent only once.
      const response = await fetch(request.clone(), { redirect: 'manual', signal: limit.signal });
      // Fails if the body is cut off. The caller reads the body again.
      const text = await response.clone().text();
      if (response.status === 200 && !('name' in JSON.parse(text)))
        throw new Error(`no plant: ${text}`);
      const isTemporary = [408, 429, 500, 502, 503, 504].includes(response.status);
      if (!isTemporary || attempt === 6) return response;
      const after = Number(response.headers.get('Retry-After')) || 0;
      pause = Math.max(pause, Math.min(after, 60));
    } catch (error) {
      // Refused, reset, cut off, too slow, or no plant. In a browser, a bad certificate looks the
      // same. Node has a list: https://nodejs.org/api/tls.html#x509-certificate-error-codes
      const { cause } = error as { cause?: { code?: string } };
      const isBadCertificate = /CERT|^(INVALID|PATH|UNABLE|UNSPECIFIED)/.test(cause?.code ?? '');
      if (isBadCertificate || request.signal.aborted || attempt === 6) throw error;
    } finally {
      clearTimeout(timer);
      request.signal.removeEventListener('abort', onAbort);
    }
    await wait(1_000 * pause, request.signal);
  }
}

/** Waits, but no longer than until the signal is aborted. */
function wait(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    const onAbort = () => {
      clearTimeout(timer);
      resolve();
    };
    signal.addEventListener('abort', onAbort, { once: true });
  });
}
