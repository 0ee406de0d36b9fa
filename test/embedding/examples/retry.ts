import { setTimeout } from 'node:timers/promises';

/** `plant` is JSON: ids beyond 2^53 need a serializer of their own. */
export async function createPlant(
  plant: string,
  token: string,
  url = 'http://127.0.0.1:8080/plants',
) {
  const headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' };
  for (let attempt = 0; attempt < 6; attempt++) {
    const signal = AbortSignal.timeout(15_000);
    const sent = fetch(url, { method: 'POST', headers, body: plant, signal });
    const response = await sent.catch(() => undefined); // refused, reset, or too slow
    if (response?.ok) return response.json();
    if (response && ![408, 429, 500, 503].includes(response.status))
      throw new Error(await response.text());
    await setTimeout(1_000 * 2 ** attempt);
  }
  throw new Error('the plant may have been stored: send it again later');
}
