/** The measurements as tables, and compared with the targets. */

import { cpus, release } from 'node:os';
import { BARE_WRITE, FLOOR, OURS, SYSTEMS } from './systems.js';

/**
 * @typedef {object} Figures latencies and processor times in microseconds, sizes in bytes
 * @property {number} rate       plants answered 200, per second
 * @property {number} p50
 * @property {number} p99
 * @property {number} other      responses other than 200, and requests that got none
 * @property {number} mainThread processor time of the main thread per plant answered 200
 * @property {number} cpu        processor time of all threads per plant answered 200
 * @property {number} gcShare    pauses for garbage collection per elapsed time
 * @property {number} heap       JavaScript heap after a forced collection under load, at most
 * @property {number} memory     peak resident set
 *
 * @typedef {(name: string) => Partial<Figures>} Round empty for a system that was not measured
 */

/**
 * Every figure is computed for each round and reported as the median. This includes ratios, whose
 * two sides are measured shortly after each other.
 *
 * @param {(Figures & { round: number, name: string, connections: number })[]} measurements
 * @returns {(connections: number, figure: (of: Round) => number, over?: (rounds: number[]) => number) => number} NaN if not measured
 */
export function summarize(measurements) {
  const rounds = [...new Set(measurements.map(({ round }) => round))];
  return (connections, figure, over = median) => {
    const measured = measurements.filter((each) => each.connections === connections);
    const figures = rounds.map((round) =>
      figure((name) => measured.find((m) => m.round === round && m.name === name) ?? {}),
    );
    return over(figures);
  };
}

export function median(numbers) {
  const sorted = numbers.toSorted((a, b) => a - b);
  const middle = (sorted.length - 1) / 2;
  return (sorted[Math.floor(middle)] + sorted[Math.ceil(middle)]) / 2;
}

function sum(numbers) {
  return numbers.reduce((total, number) => total + number, 0);
}

// The tables

const CLIENT_COLUMNS = [
  { title: 'plants/s', figure: (own) => own.rate, show: whole },
  { title: '× floor', figure: (own, of) => own.rate / of(FLOOR).rate, show: ratio },
  { title: `× ${OURS}`, figure: (own, of) => own.rate / of(OURS).rate, show: ratio },
  { title: 'p50 ms', figure: (own) => own.p50 / 1000, show: significant },
  { title: 'p99 ms', figure: (own) => own.p99 / 1000, show: significant },
  { title: 'other than 200', figure: (own) => own.other, show: whole, over: sum },
];

const SERVER_COLUMNS = [
  { title: 'main thread µs/plant', figure: (own) => own.mainThread, show: significant },
  { title: '× floor', figure: (own, of) => own.mainThread / of(FLOOR).mainThread, show: ratio },
  { title: 'all threads µs/plant', figure: (own) => own.cpu, show: significant },
  { title: 'GC % of time', figure: (own) => own.gcShare * 100, show: significant },
  { title: 'live heap MiB', figure: (own) => own.heap / 2 ** 20, show: significant },
  { title: 'peak memory MiB', figure: (own) => own.memory / 2 ** 20, show: whole },
];

/** What clients get, and what it costs the server. */
export function tables(summary, connectionCounts) {
  const bareWrite = { name: BARE_WRITE, title: 'bare O_DSYNC write, no HTTP' };
  return [
    table(summary, connectionCounts, [...SYSTEMS, bareWrite], CLIENT_COLUMNS),
    table(summary, connectionCounts, SYSTEMS, SERVER_COLUMNS),
  ];
}

/** Markdown, aligned to be readable in a terminal as well. */
function table(summary, connectionCounts, systems, columns) {
  const rows = connectionCounts.flatMap((connections) =>
    systems
      .filter(({ name }) => !Number.isNaN(summary(connections, (of) => of(name).rate)))
      .map(({ name, title }) => [
        title,
        whole(connections),
        ...columns.map(({ figure, show, over }) =>
          show(summary(connections, (of) => figure(of(name), of), over)),
        ),
      ]),
  );
  return aligned([['system', 'connections', ...columns.map(({ title }) => title)], ...rows]);
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

/** The tables with what a reader needs to judge and to repeat them. */
export function markdown(summary, { command, connections, rounds, seconds, systems }) {
  const [{ model }] = cpus();
  const works = systems.map(({ title, work }) => `- ${title}: ${work.join(', ') || 'nothing'}\n`);
  const [clients, server] = tables(summary, connections);
  return `# Results

What clients get:

${clients}
What it costs the server:

${server}
Medians of ${rounds} interleaved rounds of ${seconds} s; "other than 200" is the sum. Ratios compare the two systems
in each round. Each measurement has a new process and a new folder; \`wrk\` runs with one thread on the
same machine: ${model}, ${cpus().length} cores, Linux ${release().split('-', 1)}, Node ${process.versions.node}.

- main thread, all threads: processor time while the load runs, divided by the plants answered 200
- GC % of time: pauses of the main thread for garbage collection, as part of one second of a second
  load with the same number of connections
- live heap: JavaScript heap in use right after a forced garbage collection, the largest of five readings
  during that load; contents of buffers are not part of it
- peak memory: the largest resident set before the second load

Measured with

    ${command}

What each system does before it responds:

${works.join('')}`;
}

// The targets

/** What this service is meant to reach, and what it reached; NaN if not measured. */
export function targets(summary) {
  const atLeast = (title, figure) => compared(summary, title, 'at least', figure);
  const atMost = (title, figure) => compared(summary, title, 'at most', figure);
  const rates = atLeast('plants/s', ({ rate }) => rate);
  const latencies = atMost('p99', ({ p99 }) => p99);
  const mainThread = atMost('main thread µs/plant', (own) => own.mainThread);
  return [
    ...rates(0.8, FLOOR, 256, 1024),
    ...rates(0.7, FLOOR, 64),
    ...rates(1, 'fastify', 256, 1024),
    ...rates(1.3, 'lmdb', 16, 64, 256),
    ...rates(4, 'classic-level', 64, 256),
    ...latencies(2, FLOOR, 64, 256),
    ...latencies(1.5, FLOOR, 1024),
    ...mainThread(1.35, FLOOR, 64, 256, 1024),
    {
      claim: `p50 at 1: at most 1.15 × (${FLOOR} + ${BARE_WRITE})`,
      value: summary(1, (of) => of(OURS).p50 / (of(FLOOR).p50 + of(BARE_WRITE).p50)),
      isMet: (value) => value <= 1.15,
    },
  ];
}

/** Targets for a figure of this service as a multiple of another system's. */
function compared(summary, title, bound, figure) {
  return (limit, name, ...counts) =>
    counts.map((connections) => ({
      claim: `${title} at ${connections}: ${bound} ${limit} × ${name}`,
      value: summary(connections, (of) => figure(of(OURS)) / figure(of(name))),
      isMet: (value) => (bound === 'at least' ? value >= limit : value <= limit),
    }));
}

/** One target as a line of text. */
export function verdict({ claim, value, isMet }) {
  if (Number.isNaN(value)) return ` --   ${claim} (not measured)`;
  return `${isMet(value) ? 'pass' : 'FAIL'}  ${claim}: ${ratio(value)}`;
}
