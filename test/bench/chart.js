/**
 * An SVG bar chart of plants per second at one number of connections, each bar with its name and
 * its median. A line at the end of a bar spans the quartiles. A vertical line shows the server that
 * stores nothing.
 */

import { whole } from './report.js';
import { OURS } from './systems.js';

/**
 * The systems that people run, in the order of the bars, if they were measured. The tables show the
 * other systems, too.
 */
const BARS = [OURS, 'plant-store-postgres', 'by-hand', 'fastify-pg', 'express-sqlite'];
const FLOOR = 'floor';
/** The number of connections, if it was measured. */
const CONNECTIONS = 64;

const WIDTH = 800;
const PLOT = { left: 260, right: 690, top: 74, rowHeight: 44, barHeight: 24 };

/**
 * @param {ReturnType<import('./report.js').summarize>} summary
 * @param {{ connections: number[], rounds: number, systems: import('./systems.js').System[] }}
 * settings
 */
export function chart(summary, { connections: counts, rounds, systems }) {
  const connections = counts.includes(CONNECTIONS) ? CONNECTIONS : counts[0];
  const rate = (name) => summary(connections, (of) => of(name).rate);
  const shown = BARS.flatMap((name) => systems.find((system) => system.name === name) ?? []);
  const floor = systems.some(({ name }) => name === FLOOR) ? rate(FLOOR).median : undefined;
  const highest = Math.max(...shown.map(({ name }) => rate(name).high), floor ?? 0);
  const xOf = (value) => round(PLOT.left + (value / highest) * (PLOT.right - PLOT.left));
  const bottom = PLOT.top + shown.length * PLOT.rowHeight;

  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${bottom + 12}" role="img">
<title>Plants stored per second: ${shown.map(({ name, title }) => `${title} ${whole(rate(name).median)}`).join('; ')}</title>
<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 }
.note { font-size: 12px; fill: #59636e }
.label { text-anchor: end }
.bar { fill: #8c959f }
.ours { fill: #2da44e }
.quartiles { stroke: #1f2328 }
.floor { stroke: #8c959f; stroke-dasharray: 4 3 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .note { fill: #9198a1 }
  .quartiles { stroke: #f0f6fc }
}
</style>
<text class="title" x="8" y="22">Plants stored per second</text>
<text class="note" x="8" y="42">${connections} connections; medians and quartiles of ${rounds} rounds</text>
${floor === undefined ? '' : floorLine(xOf(floor), bottom, floor)}
${shown.map((system, row) => bar(system, row, rate(system.name), xOf)).join('\n')}
</svg>
`;
}

/** The text after the comma of a title is in a second line. */
function bar({ name, title }, row, { low, median, high }, xOf) {
  const y = PLOT.top + row * PLOT.rowHeight + (PLOT.rowHeight - PLOT.barHeight) / 2;
  const middle = y + PLOT.barHeight / 2;
  const [first, second] = title.split(/, /);
  const labels =
    second === undefined
      ? label(first, 'label', middle + 5)
      : `${label(first, 'label', middle - 2)}\n${label(second, 'label note', middle + 13)}`;
  const kind = name.startsWith(OURS) ? 'ours' : 'bar';
  return `${labels}
<rect class="${kind}" x="${PLOT.left}" y="${y}" width="${round(xOf(median) - PLOT.left)}" height="${PLOT.barHeight}"/>
<path class="quartiles" d="M${xOf(low)} ${middle}H${xOf(high)}"/>
<text x="${round(xOf(high) + 8)}" y="${middle + 5}">${whole(median)}</text>`;
}

function label(text, kind, y) {
  return `<text class="${kind}" x="${PLOT.left - 10}" y="${y}">${text}</text>`;
}

function floorLine(x, bottom, rate) {
  return `<path class="floor" d="M${x} ${PLOT.top - 8}V${bottom}"/>
<text class="note label" x="${x + 60}" y="${PLOT.top - 14}">node:http that stores nothing: ${whole(rate)}</text>`;
}

function round(length) {
  return Math.round(length * 10) / 10;
}
