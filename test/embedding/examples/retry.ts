/**
 * A `fetch` for plants, in browsers and Node. It sends a request again until there is an answer
 * that is not temporary. After six attempts, it resolves to the last answer, or rejects with the
 * last network error. Then the plant may have been stored: send it again later, unchanged.
 *
 * It follows no redirect, which leads to a page such as a login, whose 200 is no plant. The answer
 * with the redirect has the status 0 in browsers, and its own, such as 302, in Node.
 *
 * All attempts together can take two minutes: show that the plant is still being sent. In a page,
 * keep the plant with its id in `sessionStorage` until the 200. After a reload, send it from there:
 * with another id, it would be another plant.
 *
 * If a private authority has signed the certificate of the service, set NODE_EXTRA_CA_CERTS=ca.pem.
 * Node 22.18 and later run this file as it is. Node 20 needs it compiled to JavaScript.
 *
 * @example In a page, whose proxy adds the token. `plant` is JSON with any id:
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
      await response.clone().text();
      const isTemporary = [408, 429, 500, 502, 503, 504].includes(response.status);
      if (!isTemporary || attempt === 6) return response;
      pause = Math.max(pause, Number(response.headers.get('Retry-After')) || 0);
    } catch (error) {
      // Refused, reset, cut off, or too slow. In a browser, a bad certificate looks the same.
      const { cause } = error as { cause?: { code?: string } };
      const isFinal = request.signal.aborted || /CERT|VERIFY/.test(String(cause?.code));
      if (isFinal || attempt === 6) throw error;
    } finally {
      clearTimeout(timer);
      request.signal.removeEventListener('abort', onAbort);
    }
    await new Promise((resolve) => setTimeout(resolve, 1_000 * pause));
  }
}
