/** The samples of metrics in Prometheus' text format, by name and labels. */
export function samplesIn(text: string): Map<string, number> {
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(
    lines.map((line) => {
      const space = line.lastIndexOf(' ');
      return [line.slice(0, space), Number(line.slice(space))];
    }),
  );
}

/** Fetches the metrics of a monitor, and resolves to their samples. */
export async function scrape(url: string): Promise<Map<string, number>> {
  return samplesIn(await (await fetch(`${url}/metrics`)).text());
}
