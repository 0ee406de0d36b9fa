/** What was measured: as a table, and against the targets. */

import { cpus, release } from 'node:os';
import { BARE_WRITE, FLOOR, OURS, SYSTEMS } from './systems.js';

/**
 * @typedef {object} Figures microseconds, bytes and seconds
 * @property {number} rate    requests answered 200, a second
 * @property {number} p50
 * @property {number} p99
 * @property {number} other   answers other than 200, and requests that got none
 * @property {number} memory  peak resident set
 * @property {number} cpu     per 100,000 requests answered 200
 *
 * @typedef {(name: string) => Partial<Figures>} Round empty for what was not measured
 */

/**
 * Whatever is reported is computed in each round, and the median of that is
 * taken: so are ratios, whose two sides were measured one soon after the other.
 *
 * @param {(Figures & { round: number, name: string, connections: number })[]} measurements
 * @returns {(connections: number, figure: (of: Round) => number, over?: (rounds: number[]) => number) => number} NaN for what was not measured
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

// The table

const COLUMNS = [
  { title: 'requests/s', figure: (own) => own.rate, show: whole },
  { title: '× floor', figure: (own, of) => own.rate / of(FLOOR).rate, show: ratio },
  { title: `× ${OURS}`, figure: (own, of) => own.rate / of(OURS).rate, show: ratio },
  { title: 'p50 ms', figure: (own) => own.p50 / 1000, show: significant },
  { title: 'p99 ms', figure: (own) => own.p99 / 1000, show: significant },
  { title: 'other than 200', figure: (own) => own.other, show: whole, over: sum },
  { title: 'peak MiB', figure: (own) => own.memory / 2 ** 20, show: whole },
  { title: 'CPU s/100,000', figure: (own) => own.cpu, show: significant },
];

/** Markdown, aligned so that it reads as well on a terminal. */
export function table(summary, connectionCounts) {
  const measured = [...SYSTEMS, { name: BARE_WRITE, title: 'bare O_DSYNC write, no HTTP' }];
  const rows = connectionCounts.flatMap((connections) =>
    measured
      .filter(({ name }) => !Number.isNaN(summary(connections, (of) => of(name).rate)))
      .map(({ name, title }) => [title, whole(connections), ...cells(summary, connections, name)]),
  );
  return aligned([['system', 'connections', ...COLUMNS.map(({ title }) => title)], ...rows]);
}

function cells(summary, connections, name) {
  return COLUMNS.map(({ figure, show, over }) =>
    show(summary(connections, (of) => figure(of(name), of), over)),
  );
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

/** The table with all that one needs to know to believe it. */
export function markdown(summary, { command, connections, rounds, seconds, systems }) {
  const [{ model }] = cpus();
  const works = systems.map(({ title, work }) => `- ${title}: ${work.join(', ') || 'nothing'}\n`);
  return `${table(summary, connections)}
Medians over ${rounds} interleaved rounds of ${seconds} s, ratios of each round's two sides, all answers other
than 200; each with a fresh process and folder, loaded by \`wrk\` with one thread on the same machine:
${model}, ${cpus().length} cores, Linux ${release().split('-', 1)}, Node ${process.versions.node}. Measured with

    ${command}

What each does before it answers:

${works.join('')}`;
}

// The targets

/** What this service is meant to reach, each with what it reached; NaN when not measured. */
export function targets(summary) {
  const rates = (limit, name, ...counts) =>
    counts.map((connections) => ({
      claim: `requests/s at ${connections}: at least ${limit} × ${name}`,
      value: summary(connections, (of) => of(OURS).rate / of(name).rate),
      isMet: (value) => value >= limit,
    }));
  const latencies = (limit, name, ...counts) =>
    counts.map((connections) => ({
      claim: `p99 at ${connections}: at most ${limit} × ${name}`,
      value: summary(connections, (of) => of(OURS).p99 / of(name).p99),
      isMet: (value) => value <= limit,
    }));
  return [
    ...rates(0.8, FLOOR, 256),
    ...rates(0.7, FLOOR, 64),
    ...rates(1, 'fastify', 256, 1024),
    ...rates(1.3, 'lmdb', 16, 64, 256),
    ...rates(4, 'classic-level', 64, 256),
    ...rates(8, 'nedb', 64, 256),
    ...rates(8, 'express', 64, 256),
    ...latencies(2, FLOOR, 64, 256),
    {
      claim: `p50 at 1: at most 1.15 × (${FLOOR} + ${BARE_WRITE})`,
      value: summary(1, (of) => of(OURS).p50 / (of(FLOOR).p50 + of(BARE_WRITE).p50)),
      isMet: (value) => value <= 1.15,
    },
  ];
}

/** One target as a line of text. */
export function verdict({ claim, value, isMet }) {
  if (Number.isNaN(value)) return ` --   ${claim} (not measured)`;
  return `${isMet(value) ? 'pass' : 'FAIL'}  ${claim}: ${ratio(value)}`;
}
