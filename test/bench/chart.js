/**
 * An SVG bar chart of plants per second, with one group for each number of connections. A line on each bar shows the
 * quartiles.
 */

const WIDTH = 1000;
const LEGEND = { columns: 3, rowHeight: 18 };
const PLOT = { top: 64, height: 260 };
const HEIGHT = PLOT.top + PLOT.height + 24;
const GAP = 16;

/** All readable on white and on black. */
const COLORS = {
  floor: '#8c959f',
  'plant-store': '#2da44e',
  'sqlite-group': '#0969da',
  fastify: '#bf8700',
  lmdb: '#8250df',
};

/**
 * @param {ReturnType<import('./report.js').summarize>} summary
 * @param {{ connections: number[], systems: import('./systems.js').System[] }} settings
 */
export function chart(summary, { connections: counts, systems }) {
  const rate = (name, connections) => summary(connections, (of) => of(name).rate);
  const highest = Math.max(
    ...systems.flatMap(({ name }) => counts.map((count) => rate(name, count).high)),
  );
  const groupWidth = WIDTH / counts.length;
  const barWidth = (groupWidth - GAP) / systems.length;

  const group = (connections, index) => {
    const left = index * groupWidth + GAP / 2;
    const bars = systems.map(({ name }, position) =>
      bar(left + position * barWidth, barWidth, highest, rate(name, connections), COLORS[name]),
    );
    return `${bars.join('\n')}\n${groupTitle(left + (groupWidth - GAP) / 2, connections)}`;
  };

  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img">
<title>Plants per second, by number of connections: medians and quartiles</title>
<style>
text { font: 12px system-ui, sans-serif; fill: #59636e }
.bar { font-size: 9px; text-anchor: middle }
.group { text-anchor: middle }
.unit { text-anchor: end }
.quartiles { stroke: #59636e }
@media (prefers-color-scheme: dark) { text { fill: #9198a1 } .quartiles { stroke: #d1d9e0 } }
</style>
${systems.map(legend).join('\n')}
<text class="unit" x="${WIDTH - GAP / 2}" y="31">plants per second</text>
${counts.map(group).join('\n')}
</svg>
`;
}

function legend({ name, title }, index) {
  const x = round((index % LEGEND.columns) * (WIDTH / LEGEND.columns) + GAP / 2);
  const y = Math.floor(index / LEGEND.columns) * LEGEND.rowHeight;
  return `<rect x="${x}" y="${y + 4}" width="10" height="10" fill="${COLORS[name]}"/>
<text x="${x + 16}" y="${y + 13}">${title}</text>`;
}

function bar(x, width, highest, { low, median, high }, color) {
  const bottom = PLOT.top + PLOT.height;
  const yOf = (value) => round(bottom - (value / highest) * PLOT.height);
  const middle = round(x + width / 2);
  return `<rect x="${round(x + 1)}" y="${yOf(median)}" width="${round(width - 2)}" height="${round(bottom - yOf(median))}" fill="${color}"/>
<path class="quartiles" d="M${middle} ${yOf(low)}V${yOf(high)}"/>
<text class="bar" x="${middle}" y="${round(yOf(high) - 3)}">${thousands(median)}</text>`;
}

function groupTitle(x, connections) {
  const unit = connections === 1 ? 'connection' : 'connections';
  return `<text class="group" x="${round(x)}" y="${HEIGHT - 8}">${connections.toLocaleString('en')} ${unit}</text>`;
}

function thousands(value) {
  return `${(value / 1000).toFixed(value < 10_000 ? 1 : 0)}k`;
}

function round(length) {
  return Math.round(length * 10) / 10;
}
