/**
 * One round: starts all servers on new folders, checks their work, and loads them by turns with
 * wrk.
 */

import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { median, significant, whole } from './report.js';

const LOAD = fileURLToPath(new URL('load.lua', import.meta.url));
const PROBE = new URL('probe.js', import.meta.url).href;
export const TOKEN = randomBytes(32).toString('base64url');

/**
 * Enough requests for V8 to optimize the code; over a single connection they would take minutes.
 */
const WARM_UP = { seconds: 2, connections: 64 };
/**
 * How long load.lua waits for its connections to be accepted. Node accepts one connection per
 * iteration of the event loop (libuv 1.46). Under load the last of 1,024 would wait for seconds,
 * and the 99th percentile would be the latency of their first request.
 */
const ACCEPT_SECONDS = { least: 0.25, perConnection: 0.25e-3 };
/** How long wrk waits at most for the responses that are pending at the deadline. */
const LAST_RESPONSES_SECONDS = 20;
const START_MS = 10_000;
const STOP_MS = 15_000;

/** All running child processes; none outlives this process. */
const children = new Set();
process.on('exit', () => children.forEach((child) => child.kill('SIGKILL')));

/** The first four digits of all ids of the next load, so that all lines have the same length. */
let nextRun = 1001;

/**
 * @param {Parameters<typeof measureRound>[0] & { rounds: number }} settings
 * @param {string} folder
 */
export async function measureRounds({ rounds, ...settings }, folder) {
  const measurements = [];
  for (let round = 1; round <= rounds; round++)
    for (const measured of await measureRound(settings, folder)) {
      const { name, connections, rate, mainThread } = measured;
      const result = `${name} ${whole(rate)}/s, ${significant(mainThread)} µs`;
      console.error(`round ${round} of ${rounds}, connections ${connections}: ${result}`);
      measurements.push({ round, ...measured });
    }
  return measurements;
}

/**
 * Runs all systems at the same time, each in a new process. At each number of connections, one of
 * them is loaded for `seconds` while the others are idle, then the next one, and so on for `turns`
 * turns. Other activity on the machine affects all systems alike.
 *
 * @param {{ systems: import('./systems.js').System[], connections: number[], turns: number,
 * seconds: number }} settings
 * @param {string} parent the folder in which the data folders are created
 * @returns {Promise<({ name: string, connections: number } & import('./report.js').Figures)[]>}
 */
async function measureRound({ systems, ...settings }, parent) {
  const servers = [];
  try {
    for (const system of systems) {
      await system.prepare?.();
      servers.push(startServer(system, await mkdtemp(join(parent, 'data-'))));
    }
    const measurements = await Promise.race([exercise(servers, settings), ...servers.map(crash)]);
    for (const server of servers) await stop(server);
    for (const { system, folder, loads } of servers)
      if (system.readIds !== undefined) checkIds(await system.readIds(folder), loads);
    return measurements;
  } finally {
    for (const { child, ended, folder } of servers) {
      child.kill('SIGKILL');
      await ended;
      await rm(folder, { recursive: true });
    }
  }
}

async function exercise(servers, { connections: counts, turns, seconds }) {
  for (const server of servers) {
    server.url = await listening(server);
    await checkWork(server.url, server.system);
    server.loads.push(await load(server.url, WARM_UP.connections, WARM_UP.seconds));
  }
  const measurements = [];
  for (const connections of counts) {
    const windows = new Map(servers.map((server) => [server, []]));
    for (let turn = 0; turn < turns; turn++)
      for (const server of startingWith(turn, servers))
        windows.get(server).push(await measureWindow(server, connections, seconds));
    for (const [{ system }, measured] of windows)
      measurements.push({ name: system.name, connections, ...combine(measured) });
  }
  return measurements;
}

export function startingWith(position, all) {
  const first = position % all.length;
  return [...all.slice(first), ...all.slice(0, first)];
}

async function measureWindow(server, connections, seconds) {
  const usage = {};
  const measured = await load(server.url, connections, seconds, async (moment) => {
    usage[moment] = await ask(server.child, 'usage');
  });
  const { name } = server.system;
  if (measured.other > 0) throw new Error(`${name}: ${measured.other} requests got no 200`);
  server.loads.push(measured);
  // At the deadline each connection was waiting for one more response.
  const rate = (measured.answered - connections) / seconds;
  return { ...measured, rate, ...usageBetween(usage.begin, usage.end, measured.answered) };
}

/** Combines the figures of the windows of a round. */
function combine(windows) {
  const over = (name) => median(windows.map((window) => window[name]));
  const names = ['rate', 'p50', 'p99', 'mainThread', 'cpu'];
  const figures = Object.fromEntries(names.map((name) => [name, over(name)]));
  return { ...figures, memory: Math.max(...windows.map(({ memory }) => memory)) };
}

/** The cost of `answered` plants between two moments. */
export function usageBetween(begin, end, answered) {
  return {
    cpu: ((end.cpu - begin.cpu) * 1000) / answered,
    mainThread: ((end.mainThread - begin.mainThread) * 1000) / answered,
    memory: end.peakMemory,
  };
}

// Processes

const STDIO = ['ignore', 'pipe', 'inherit'];

export function start(command, args, { env = process.env, stdio = STDIO } = {}) {
  const child = spawn(command, args, { env, stdio });
  children.add(child);
  child.once('exit', () => children.delete(child));
  return child;
}

export async function run(command, args) {
  const child = start(command, args);
  const [output, [code]] = await Promise.all([text(child.stdout), once(child, 'close')]);
  if (code !== 0) throw new Error(`${command} ${args.join(' ')} ended with ${code}:\n${output}`);
  return output;
}

function startServer(system, folder) {
  const child = startProbed(system.script, {
    PATH: process.env.PATH,
    NODE_ENV: 'production',
    PORT: '0',
    FOLDER: folder,
    TOKEN,
    PLANT_STORE_PORT: '0',
    PLANT_STORE_TOKEN: TOKEN,
    ...(system.env ?? { PLANT_STORE_FILE: join(folder, 'plants.jsonl') }),
  });
  return { system, child, folder, ended: once(child, 'exit'), loads: [] };
}

export function startProbed(script, env) {
  const args = ['--expose-gc', '--import', PROBE, script];
  return start(process.execPath, args, { env, stdio: [...STDIO, 'ipc'] });
}

/** @param {'usage' | 'memory' | 'delay'} question see probe.js */
export async function ask(child, question) {
  child.send(question);
  const [answer] = await once(child, 'message');
  return answer;
}

async function listening({ system, child }) {
  const lines = createInterface({ input: child.stdout });
  const [line] = await once(lines, 'line', { signal: AbortSignal.timeout(START_MS) });
  const url = /\blistening on (http:\S+)$/.exec(line)?.[1];
  if (url === undefined) throw new Error(`${system.name} did not print its URL: ${line}`);
  return `${url}/plants`;
}

async function crash({ system, ended }) {
  const [code, signal] = await ended;
  throw new Error(`${system.name} ended unexpectedly with ${code ?? signal}`);
}

async function stop({ system, child, ended }) {
  const timeout = setTimeout(() => child.kill('SIGKILL'), STOP_MS);
  child.kill('SIGTERM');
  const [code, signal] = await ended;
  clearTimeout(timeout);
  if (code === 0 || signal === 'SIGTERM') return;
  throw new Error(`${system.name} ended with ${code ?? signal} after SIGTERM`);
}

// Requests

/**
 * @param {(moment: 'begin' | 'end') => Promise<void>} [observe] called before the first plant is
 *   sent, and once all responses have arrived; not the latter if some never do
 */
export async function load(url, connections, seconds, observe = async () => {}) {
  const id = nextRun++;
  const accepting = Math.max(ACCEPT_SECONDS.least, connections * ACCEPT_SECONDS.perConnection);
  const duration = `-d${Math.ceil(accepting + seconds + LAST_RESPONSES_SECONDS)}s`;
  const wrk = ['-t1', `-c${connections}`, duration, '--timeout', '20s', '-s', LOAD];
  const child = start('wrk', [...wrk, url, '--', TOKEN, id, seconds, connections, accepting]);
  const ended = once(child, 'close');
  let last;
  for await (const line of createInterface({ input: child.stdout })) {
    if (line === 'begin' || line === 'end') await observe(line);
    // wrk prints its summary at once.
    if (line === 'end') child.kill('SIGINT');
    last = line;
  }
  const [code] = await ended;
  if (code !== 0) throw new Error(`wrk ended with ${code}: ${last}`);
  return { run: id, ...JSON.parse(last) };
}

async function post(url, plant, token = TOKEN) {
  const headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' };
  const answer = await fetch(url, { method: 'POST', headers, body: JSON.stringify(plant) });
  await answer.arrayBuffer();
  return answer.status;
}

const FERN = { name: 'Boston fern', tag: 'indoor' };

/** The status with which a system must respond if it does that part of the work. */
const CHECKS = [
  { plant: { id: 1, ...FERN }, status: 200 },
  { work: 'token', plant: { id: 2, ...FERN }, token: 'wrong', status: 401 },
  { work: 'validation', plant: { id: 'two', ...FERN }, status: 400 },
  { work: 'unique id', plant: { id: 1, name: 'Ivy' }, status: 400 },
];

async function checkWork(url, { name, work }) {
  for (const check of CHECKS) {
    if (check.work !== undefined && !work.includes(check.work)) continue;
    const status = await post(url, check.plant, check.token);
    if (status === check.status) continue;
    throw new Error(`${name} responded with ${status} to ${JSON.stringify(check)}`);
  }
}

// What was stored

const IDS_PER_RUN = 1e9;

/**
 * Checks that every id is unique, and that all plants answered 200 and only plants that were sent
 * are stored. The two differ by the plants refused, and by at most one per connection whose
 * response came too late for wrk.
 */
export function checkIds(ids, loads) {
  if (new Set(ids).size !== ids.length) throw new Error('an id is stored twice');
  checkStored('the checks', ids, { run: 0, answered: 1, sent: 1 });
  for (const wrk of loads) checkStored(`wrk's run ${wrk.run}`, ids, wrk);
}

function checkStored(what, ids, { run, answered, sent }) {
  const stored = ids.filter((id) => Math.floor(id / IDS_PER_RUN) === run).length;
  if (stored >= answered && stored <= sent) return;
  throw new Error(`${what}: ${answered} of ${sent} answered 200, ${stored} stored`);
}
