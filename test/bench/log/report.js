/** The measurements of the log as one table, with the targets. */

import { cpus, release, totalmem } from 'node:os';
import { aligned, median, ratio, significant, whole } from '../report.js';

const FULL_SIZE = 10_000_000;
const HEAD = ['', 'plant-store', 'target', '', 'JSON.parse, Set', 'JSON.parse', 'Map'];

export function machine() {
  const [{ model }] = cpus();
  const memory = whole(totalmem() / 2 ** 30);
  return `${model}, ${cpus().length} cores, ${memory} GiB, Linux ${release()}, Node ${process.versions.node}`;
}

/** @typedef {{ value: number, show: (value: number) => string }} Figure */

export function table({ readings, memory, stalls, adds }, { plants, rounds }) {
  const of = (reader, order = 'sequential') =>
    readings.filter((each) => each.reader === reader && each.order === order);
  const ours = of('plant-store');
  const shuffled = of('plant-store', 'shuffled');
  const withSet = of('JSON.parse, Set');
  const bare = of('JSON.parse');
  const shuffledBare = of('JSON.parse', 'shuffled');
  const figure = (results, name, unit = 1) => median(results.map((each) => each[name])) / unit;
  const times = (results, readings = ours) =>
    median(results.map(({ seconds }, n) => seconds / readings[n].seconds));
  const size = (count) => count.toLocaleString('en');

  const samples = memory.ours.samples;
  const upTo = (limit) => samples.filter((sample) => sample.size <= limit);
  const most = (some, name = 'bytes') =>
    Math.max(...some.map((sample) => sample[name] / sample.size));
  const at = (count, name = 'bytes') => {
    const sample = samples.find((each) => each.size === count);
    return sample[name] / sample.size;
  };
  const mapSample = memory.map.samples.at(-1);
  const stallOf = (name, what = 'stall') =>
    median(stalls.ours.filter(({ index }) => index === name).map((each) => each[what]));

  const rows = [
    row(`open ${size(plants)} plants, s`, significant, {
      value: figure(ours, 'seconds'),
      atMost: (5 * plants) / FULL_SIZE,
      others: [figure(withSet, 'seconds'), figure(bare, 'seconds')],
    }),
    row('  µs per plant', ratio, {
      value: figure(ours, 'seconds', plants / 1e6),
      others: [figure(withSet, 'seconds', plants / 1e6), figure(bare, 'seconds', plants / 1e6)],
    }),
    row('  times as fast as JSON.parse, Set', ratio, { value: times(withSet) }),
    row('  times as fast as JSON.parse alone', ratio, { value: times(bare), atLeast: 1.5 }),
    row('  ids shuffled, s', significant, {
      value: figure(shuffled, 'seconds'),
      atMost: (5 * plants) / FULL_SIZE,
      others: [NaN, figure(shuffledBare, 'seconds')],
    }),
    row('  ids shuffled, times as fast as JSON.parse alone', ratio, {
      value: times(shuffledBare, shuffled),
      atLeast: 1.5,
    }),
    row('  peak resident, MiB', whole, {
      value: figure(ours, 'peak', 2 ** 20),
      others: [figure(withSet, 'peak', 2 ** 20), figure(bare, 'peak', 2 ** 20)],
    }),
    row('  of it outside the index, MiB', whole, {
      value: median(ours.map(({ peak, held }) => peak - held)) / 2 ** 20,
    }),
    row('  calls of onProgress', whole, { value: figure(ours, 'progressCalls') }),
    row(`bytes per plant, at most, up to ${size(2 * plants)}`, significant, {
      value: most(upTo(2 * plants)),
      atMost: 40,
      others: [NaN, NaN, most(memory.map.samples)],
    }),
    row(`  at ${size(2 * plants)}`, significant, {
      value: at(2 * plants),
      atMost: plants === FULL_SIZE ? 34 : undefined,
    }),
    row(`  at most, up to ${size(10 * plants)}, no log`, significant, {
      value: most(samples),
      atMost: 40,
    }),
    row(`  at ${size(10 * plants)}, no log`, significant, { value: at(10 * plants) }),
    row('  the same, resident', significant, {
      value: at(10 * plants, 'resident'),
      others: [NaN, NaN, mapSample.resident / mapSample.size],
    }),
    row('plants added', whole, {
      value: memory.ours.size,
      atLeast: 10 * plants,
      others: [NaN, NaN, memory.map.size],
    }),
    row(`longest stall up to ${size(2 * plants)}, ms`, significant, {
      value: stallOf('plant-store'),
      atMost: 25,
      others: [NaN, NaN, stalls.map.stall],
    }),
    row('  CPU time of the longest batch, ms', significant, {
      value: stallOf('plant-store', 'turnCpu'),
      others: [NaN, NaN, stalls.map.turnCpu],
    }),
    row('  stall without growth, ms', significant, { value: stallOf('flat array') }),
    row(`durable adds/s into ${size(plants)}`, whole, { value: figure(adds, 'full') }),
    row('  × durable adds/s into a new log', ratio, {
      value: median(adds.map(({ full, empty }) => full / empty)),
      atLeast: 0.95,
    }),
  ];
  return `${aligned([HEAD, ...rows])}
Medians of ${rounds} rounds (durable adds: ${adds.length}); ratios compare the two sides of each round.
- Both reference readers stream the file, decode the lines of a chunk into one string, split it and
  JSON.parse each line; the first keeps the ids in a Set to detect duplicates. plant-store also checks
  each line's format and CRC-32, and keeps its offset.
- Bytes per plant: heap and buffers in use after a forced GC, sampled every 250,000 plants from
  1,000,000 on; resident: growth of the process's resident set.
- Map ended at ${size(memory.map.size)}: ${memory.map.end}.
- Stall: the longest delay of the event loop (monitorEventLoopDelay, 1 ms) while 256 plants are added
  in each iteration. "Without growth": writes to a flat array that is allocated at the start.`;
}

function row(title, show, { value, atMost, atLeast, others = [] }) {
  const target = atMost ?? atLeast;
  const isMet = atMost === undefined ? value >= atLeast : value <= atMost;
  return [
    title,
    show(value),
    target === undefined
      ? ''
      : `${atMost === undefined ? '≥' : '≤'} ${target.toLocaleString('en')}`,
    target === undefined ? '' : isMet ? 'pass' : 'MISS',
    ...Array.from({ length: 3 }, (_, n) => (Number.isFinite(others[n]) ? show(others[n]) : '')),
  ];
}
