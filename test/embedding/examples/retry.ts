/**
 * A refusal is an Error whose message begins with the status, followed by the body of the answer.
 * `plant` is JSON: ids beyond 2^53 need a serializer of their own.
 */
export async function createPlant(
  plant: string,
  token: string,
  url = 'http://127.0.0.1:8080/plants',
): Promise<unknown> {
  const headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' };
  // A redirect leads to a page, such as a login, whose 200 is no plant.
  const init = { method: 'POST', headers, body: plant, redirect: 'manual' } as const;
  const request = new Request(url, init);
  for (let attempt = 0; ; attempt++) {
    let pause = 2 ** attempt;
    let refusal = '';
    try {
      const response = await fetch(request.clone(), { signal: AbortSignal.timeout(15_000) });
      if (response.ok) return await response.json();
      const text = await response.text();
      if (![408, 429, 500, 502, 503, 504].includes(response.status))
        refusal = `${response.status} ${text}`;
      pause = Math.max(pause, Number(response.headers.get('Retry-After')) || 0);
    } catch (error) {
      // Refused, reset, cut off, or too slow. In a browser, a bad certificate looks the same.
      const { cause } = error as { cause?: { code?: string } };
      if (/CERT|VERIFY/.test(String(cause?.code))) throw error;
    }
    if (refusal) throw new Error(refusal);
    if (attempt === 5) throw new Error('the plant may have been stored: send it again later');
    await new Promise((resolve) => setTimeout(resolve, 1_000 * pause));
  }
}
