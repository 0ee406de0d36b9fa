/** One measurement: a fresh server over a fresh folder, its work checked, loaded by wrk. */

import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { crc32 } from 'node:zlib';

const LOAD = fileURLToPath(new URL('load.lua', import.meta.url));
const BARE_WRITE = fileURLToPath(new URL('bare-write.js', import.meta.url));
export const TOKEN = randomBytes(32).toString('base64url');

/** Enough requests for V8 to compile what it will; a single connection would take minutes for them. */
const WARM_UP = { seconds: 2, connections: 64 };
/** What load.lua needs before the first plant, and after the last one. */
const ASIDE_SECONDS = 1;
const START_MS = 10_000;
const STOP_MS = 15_000;

/** Linux counts a process's CPU time in hundredths of a second, whatever the kernel's tick. */
const CLOCK_TICKS = 100;

/** Every child that runs; none outlives this process. */
const children = new Set();
process.on('exit', () => children.forEach((child) => child.kill('SIGKILL')));

/** The number that ids of the next load begin with; three digits, so that all lines are as long. */
let nextRun = 101;

/**
 * @param {import('./systems.js').System} system
 * @param {number} connections
 * @param {number} seconds
 * @param {string} parent the folder in which the data folder is made
 */
export async function measure(system, connections, seconds, parent) {
  const folder = await mkdtemp(join(parent, `${system.name}-`));
  const server = startServer(system, folder);
  try {
    const loads = await Promise.race([exercise(server, connections, seconds), crash(server)]);
    await stop(server);
    if (system.log !== undefined) await checkLog(join(folder, system.log), loads);
    return loads.at(-1);
  } finally {
    server.child.kill('SIGKILL');
    await server.ended;
    await rm(folder, { recursive: true });
  }
}

export async function measureBareWrite(seconds, folder) {
  return JSON.parse(await run(process.execPath, [BARE_WRITE, folder, seconds]));
}

async function exercise(server, connections, seconds) {
  const url = await listening(server);
  await checkWork(url, server.system);
  const warmUp = await load(url, WARM_UP.connections, WARM_UP.seconds);
  const before = await cpuSeconds(server.child.pid);
  const measured = await load(url, connections, seconds);
  const cpu = (await cpuSeconds(server.child.pid)) - before;
  return [
    warmUp,
    {
      ...measured,
      // When time was up, each connection waited for one more answer.
      rate: (measured.answered - connections) / seconds,
      memory: await peakMemory(server.child.pid),
      cpu: (cpu / measured.answered) * 1e5,
    },
  ];
}

// Processes

export function start(command, args, env = process.env, stdin = 'ignore') {
  const child = spawn(command, args, { env, stdio: [stdin, 'pipe', 'inherit'] });
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
  const child = start(process.execPath, [system.script], {
    PATH: process.env.PATH,
    NODE_ENV: 'production',
    PORT: '0',
    FOLDER: folder,
    TOKEN,
    PLANT_STORE_PORT: '0',
    PLANT_STORE_FILE: join(folder, 'plants.jsonl'),
    PLANT_STORE_TOKEN: TOKEN,
  });
  return { system, child, ended: once(child, 'exit') };
}

async function listening({ system, child }) {
  const lines = createInterface({ input: child.stdout });
  const [line] = await once(lines, 'line', { signal: AbortSignal.timeout(START_MS) });
  const url = /\blistening on (http:\S+)$/.exec(line)?.[1];
  if (url === undefined) throw new Error(`${system.name} does not say where it listens: ${line}`);
  return `${url}/plants`;
}

async function crash({ system, ended }) {
  const [code, signal] = await ended;
  throw new Error(`${system.name} ended by itself with ${code ?? signal}`);
}

async function stop({ system, child, ended }) {
  const impatience = setTimeout(() => child.kill('SIGKILL'), STOP_MS);
  child.kill('SIGTERM');
  const [code, signal] = await ended;
  clearTimeout(impatience);
  if (code === 0 || signal === 'SIGTERM') return;
  throw new Error(`${system.name}, told to end, ended with ${code ?? signal}`);
}

async function cpuSeconds(pid) {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const [user, system] = fields.slice(11, 13).map(Number); // utime, stime: proc_pid_stat(5)
  return (user + system) / CLOCK_TICKS;
}

async function peakMemory(pid) {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)[1]) * 1024;
}

// Requests

export async function load(url, connections, seconds) {
  const id = nextRun++;
  const duration = `-d${seconds + ASIDE_SECONDS}s`;
  const wrk = ['-t1', `-c${connections}`, duration, '--timeout', '20s', '-s', LOAD];
  const output = await run('wrk', [...wrk, url, '--', TOKEN, id, seconds]);
  return { run: id, ...JSON.parse(output.trimEnd().split('\n').at(-1)) };
}

async function post(url, plant, token = TOKEN) {
  const headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' };
  const answer = await fetch(url, { method: 'POST', headers, body: JSON.stringify(plant) });
  await answer.arrayBuffer();
  return answer.status;
}

const FERN = { name: 'Boston fern', tag: 'indoor' };

/** What a system that claims a part of the work has to answer. */
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
    throw new Error(`${name} answers ${status} to ${JSON.stringify(check)}`);
  }
}

// The log

const RECORD = /^(\{"id":(\d+),"name":"Boston fern","tag":"indoor"),"crc32":(\d+)\}$/;
const IDS_PER_RUN = 1e9;

/**
 * Every line is whole, every id is there once, and of each load there are all
 * plants answered 200 and none but those that were sent. These are the same,
 * but for plants refused, and at most one a connection that was answered later
 * than wrk waited.
 */
async function checkLog(file, loads) {
  const ids = await readIds(file);
  if (new Set(ids).size !== ids.length) throw new Error(`${file} holds an id twice`);
  checkStored('the checks', ids, { run: 0, answered: 1, sent: 1 });
  for (const wrk of loads) checkStored(`wrk's run ${wrk.run}`, ids, wrk);
}

function checkStored(what, ids, { run, answered, sent }) {
  const stored = ids.filter((id) => Math.floor(id / IDS_PER_RUN) === run).length;
  if (stored >= answered && stored <= sent) return;
  throw new Error(`${what}: ${answered} of ${sent} answered 200, ${stored} in the log`);
}

async function readIds(file) {
  const lines = (await readFile(file, 'utf8')).split('\n');
  if (lines.pop() !== '') throw new Error(`${file} does not end with a newline`);
  return lines.map((line) => {
    const [, content, id, sum] = RECORD.exec(line) ?? [];
    if (id === undefined || crc32(content) !== Number(sum)) {
      throw new Error(`${file} holds a damaged line: ${line}`);
    }
    return Number(id);
  });
}
