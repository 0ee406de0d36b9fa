/** The measurements as tables, and compared with the targets. */

import { cpus, release } from 'node:os';
import { measureDisk } from './setup.js';
import { OURS } from './systems.js';

/**
 * @typedef {object} Figures of one round; latencies and processor times in microseconds
 * @property {number} rate plants answered 200, per second
 * @property {number} p50
 * @property {number} p99
 * @property {number} mainThread processor time of the main thread per plant
 * @property {number} cpu processor time of all threads per plant
 * @property {number} memory peak resident set in bytes
 *
 * @typedef {(name: string) => Partial<Figures>} Round empty for a system that was not measured
 *
 * @typedef {object} Spread
 * @property {number} low the first quartile of the rounds
 * @property {number} median NaN if not measured
 * @property {number} high the third quartile
 */

/**
 * Every figure is computed for each round. This includes ratios, whose two sides have run in
 * alternating windows.
 *
 * @param {(Figures & { round: number, name: string, connections: number })[]} measurements
 * @returns {(connections: number, figure: (of: Round) => number) => Spread}
 */
export function summarize(measurements) {
  const rounds = [...new Set(measurements.map(({ round }) => round))];
  return (connections, figure) => {
    const measured = measurements.filter((each) => each.connections === connections);
    const figures = rounds.map((round) =>
      figure((name) => measured.find((m) => m.round === round && m.name === name) ?? {}),
    );
    const [low, middle, high] = [0.25, 0.5, 0.75].map((share) => quantile(figures, share));
    return { low, median: middle, high };
  };
}

export function median(numbers) {
  return quantile(numbers, 0.5);
}

/** A quantile between two numbers is interpolated. */
function quantile(numbers, share) {
  const sorted = numbers.toSorted((a, b) => a - b);
  const at = (sorted.length - 1) * share;
  const below = sorted[Math.floor(at)];
  return below + (sorted[Math.ceil(at)] - below) * (at % 1);
}

// The tables

const overOurs = (name) => (own, of) => own[name] / of(OURS)[name];

/** The columns about what clients get. */
const CLIENT_COLUMNS = [
  { title: 'plants/s', figure: (own) => own.rate, show: whole },
  { title: `× ${OURS}`, figure: overOurs('rate'), show: ratio },
  { title: 'p50 ms', figure: (own) => own.p50 / 1000, show: significant },
  { title: 'p99 ms', figure: (own) => own.p99 / 1000, show: significant },
];

/** The columns about what the plants cost the server. */
const SERVER_COLUMNS = [
  { title: 'main thread µs/plant', figure: (own) => own.mainThread, show: significant },
  { title: `× ${OURS}`, figure: overOurs('mainThread'), show: ratio },
  { title: 'all threads µs/plant', figure: (own) => own.cpu, show: significant },
  { title: 'peak memory MiB', figure: (own) => own.memory / 2 ** 20, show: whole },
];

export function tables(summary, settings) {
  return [CLIENT_COLUMNS, SERVER_COLUMNS].map((columns) => table(summary, settings, columns));
}

/** Markdown, aligned to be readable in a terminal as well. */
export function table(summary, { connections: counts, systems }, columns) {
  const rows = counts.flatMap((connections) =>
    systems.map(({ name, title }) => [
      title,
      whole(connections),
      ...columns.map(({ figure, show }) =>
        withSpread(
          summary(connections, (of) => figure(of(name), of)),
          show,
        ),
      ),
    ]),
  );
  return aligned([['system', 'connections', ...columns.map(({ title }) => title)], ...rows]);
}

/** A median with its quartiles, if these differ. */
function withSpread({ low, median: middle, high }, show) {
  return low < high ? `${show(middle)} (${show(low)}–${show(high)})` : show(middle);
}

/** The first column is text, the others are numbers. */
export function aligned([head, ...rows]) {
  const widths = head.map((_, column) =>
    Math.max(...[head, ...rows].map((cells) => cells[column].length)),
  );
  const pad = (cell, column) =>
    column === 0 ? cell.padEnd(widths[column]) : cell.padStart(widths[column]);
  const rule = widths.map((width, column) =>
    column === 0 ? '-'.repeat(width) : `${'-'.repeat(width - 1)}:`,
  );
  return [head.map(pad), rule, ...rows.map((cells) => cells.map(pad))]
    .map((cells) => `| ${cells.join(' | ')} |\n`)
    .join('');
}

export function whole(value) {
  return decimals(value, 0);
}

export function ratio(value) {
  return decimals(value, 2);
}

export function significant(value) {
  return decimals(value, value < 1 ? 3 : value < 100 ? 1 : 0);
}

function decimals(value, digits) {
  if (!Number.isFinite(value)) return '–';
  return value.toLocaleString('en', {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
}

/** The paragraph below a table that says how the figures were measured. */
export function method({ rounds, turns, seconds, folder }) {
  const [{ model }] = cpus();
  const { fileSystem, times } = measureDisk(folder);
  return `Medians of ${rounds} rounds, with the first and the third quartile of the rounds in parentheses. In each round, all
systems run at the same time, each in a new process. At each number of connections, they are loaded by turns, for
${seconds} s in each of ${turns} turns, while the others are idle. Ratios are computed in each round. \`wrk\` runs with one thread on
the same machine: ${model}, ${cpus().length} cores, Linux ${release().split('-', 1)}, Node ${process.versions.node}. On its file
system, ${fileSystem}, one write of 100 bytes with \`datasync\` takes ${significant(median(times))} ms.
`;
}

/** The tables with what a reader needs to judge and to repeat them. */
export function markdown(summary, settings) {
  const works = settings.systems.map(
    ({ title, work }) => `- ${title}: ${work.join(', ') || 'nothing'}\n`,
  );
  const [clients, server] = tables(summary, settings);
  return `# Results

What clients get:

${clients}
What it costs the server:

${server}
${method(settings)}
- main thread, all threads: processor time while the load runs, divided by the plants answered 200
- peak memory: the largest resident set of the process so far; the numbers of connections are measured in this order

Measured with

    ${settings.command}

What each system does before it responds:

${works.join('')}`;
}

// The targets

/** The targets of this service, and the values that it reached; NaN if not measured. */
export function targets(summary) {
  const rates = compared(summary, 'plants/s', 'at least', ({ rate }) => rate);
  const mainThread = compared(summary, 'main thread', 'at most', (own) => own.mainThread);
  return [
    ...rates(0.9, 'sqlite-group', 64, 256, 1024),
    ...rates(1, 'lmdb', 64, 256, 1024),
    ...mainThread(1.15, 'sqlite-group', 64, 256, 1024),
  ];
}

/** Targets for a figure of this service as a multiple of another system's. */
export function compared(summary, title, bound, figure) {
  return (limit, name, ...counts) =>
    counts.map((connections) => ({
      claim: `${title} at ${connections}: ${bound} ${limit} × ${name}`,
      value: summary(connections, (of) => figure(of(OURS)) / figure(of(name))).median,
      isMet: (value) => (bound === 'at least' ? value >= limit : value <= limit),
    }));
}

/** One target as a line of text. */
export function verdict({ claim, value, isMet }) {
  if (Number.isNaN(value)) return ` --   ${claim} (not measured)`;
  return `${isMet(value) ? 'pass' : 'FAIL'}  ${claim}: ${ratio(value)}`;
}
