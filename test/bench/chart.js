/** An SVG bar chart of plants per second, with one group for each number of connections. */

import { SYSTEMS } from './systems.js';

const WIDTH = 1000;
const LEGEND = { columns: 4, rowHeight: 18 };
const PLOT = { top: 64, height: 260 };
const HEIGHT = PLOT.top + PLOT.height + 24;
const GAP = 16;

/** All readable on white and on black. */
const COLORS = {
  floor: '#8c959f',
  'plant-store': '#2da44e',
  sqlite: '#54aeff',
  'sqlite-group': '#0969da',
  fastify: '#bf8700',
  lmdb: '#8250df',
  'classic-level': '#d4576b',
};

/**
 * @param {ReturnType<import('./report.js').summarize>} summary
 * @param {number[]} connectionCounts
 */
export function chart(summary, connectionCounts) {
  const rate = (name, connections) => summary(connections, (of) => of(name).rate) || 0;
  const systems = SYSTEMS.map(({ name, title }) => ({ name, title, color: COLORS[name] }));
  const shown = systems.filter(({ name }) => connectionCounts.some((count) => rate(name, count)));
  const highest = Math.max(
    ...shown.flatMap(({ name }) => connectionCounts.map((count) => rate(name, count))),
  );
  const groupWidth = WIDTH / connectionCounts.length;
  const barWidth = (groupWidth - GAP) / shown.length;

  const group = (connections, index) => {
    const left = index * groupWidth + GAP / 2;
    const bars = shown.map(({ name, color }, position) => {
      const value = rate(name, connections);
      const height = (value / highest) * PLOT.height;
      return bar(left + position * barWidth, barWidth, height, value, color);
    });
    return `${bars.join('\n')}\n${groupTitle(left + (groupWidth - GAP) / 2, connections)}`;
  };

  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img">
<title>Plants per second, by number of connections</title>
<style>
text { font: 12px system-ui, sans-serif; fill: #59636e }
.bar { font-size: 9px; text-anchor: middle }
.group { text-anchor: middle }
.unit { text-anchor: end }
@media (prefers-color-scheme: dark) { text { fill: #9198a1 } }
</style>
${shown.map(legend).join('\n')}
<text class="unit" x="${WIDTH - GAP / 2}" y="31">plants per second</text>
${connectionCounts.map(group).join('\n')}
</svg>
`;
}

function legend({ title, color }, index) {
  const x = (index % LEGEND.columns) * (WIDTH / LEGEND.columns) + GAP / 2;
  const y = Math.floor(index / LEGEND.columns) * LEGEND.rowHeight;
  return `<rect x="${x}" y="${y + 4}" width="10" height="10" fill="${color}"/>
<text x="${x + 16}" y="${y + 13}">${title}</text>`;
}

function bar(x, width, height, value, color) {
  if (value === 0) return '';
  const y = PLOT.top + PLOT.height - height;
  return `<rect x="${round(x + 1)}" y="${round(y)}" width="${round(width - 2)}" height="${round(height)}" fill="${color}"/>
<text class="bar" x="${round(x + width / 2)}" y="${round(y - 3)}">${thousands(value)}</text>`;
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
