import { basename, dirname } from 'node:path';

import type { System } from '../../dist/log/files.js';
import { openLog, type PlantLog } from '../../dist/log/log.js';
import { repairLog } from '../../dist/log/repair.js';
import type { NewPlant } from '../../dist/plant.js';
import { PlantStoreError } from '../../dist/store.js';
import { lineOf, type InterruptedWrite, type Knowledge } from './knowledge.js';
import type { Machine } from './simulated-fs.js';

/** A broken promise of the log. */
export class Violation extends Error {
  override readonly name = 'Violation';
}

/** A process that uses a log. */
export interface Process {
  readonly machine: Machine;
  /** The file system that the log uses: that of the machine, unless a test breaks it. */
  readonly fs: System;
  readonly path: string;
  readonly knowledge: Knowledge;
}

/** Opens the log, and remembers the torn tail that it reports to have moved. */
export function open({ machine, fs, path, knowledge }: Process): Promise<PlantLog> {
  return openLog(fs, path, {
    report(message) {
      const [, copy] = /: moved .* to (.*)$/.exec(message) ?? [];
      if (copy !== undefined) knowledge.tails.add(textOf(machine, copy));
    },
  });
}

/** Sends plants as clients do, and checks the answers. */
export async function send(
  { knowledge }: Process,
  log: PlantLog,
  plants: readonly NewPlant[],
): Promise<void> {
  await Promise.all(plants.map((plant) => sendOne(knowledge, log, plant)));
}

async function sendOne(
  { sent, acknowledged }: Knowledge,
  log: PlantLog,
  plant: NewPlant,
): Promise<void> {
  const line = lineOf(plant);
  sent.set(line, plant);
  const wasAcknowledged = acknowledged.get(plant.id) === line;
  const answer = await log.add(plant).catch(codeOf);
  const known = acknowledged.get(plant.id);
  if (answer === 'created' && wasAcknowledged) throw new Violation(`${shown(line)} was lost`);
  if (answer === 'created' || answer === 'unchanged') {
    if ((known ?? line) !== line) throw new Violation(`${shown(line)} replaced another plant`);
    acknowledged.set(plant.id, line);
  }
  const ofSameId = [...sent.values()].filter(({ id }) => id === plant.id);
  if (answer === 'conflict' && (known === line || ofSameId.length === 1))
    throw new Violation(`${shown(line)} was refused as a conflict`);
}

function codeOf(error: unknown): string {
  if (error instanceof PlantStoreError) return error.code;
  throw error;
}

/**
 * Starts a process after a crash, and checks that the log has kept every promise. Clients send all
 * plants again that were not acknowledged, and a new one.
 */
export async function recover(process: Process, newPlant: NewPlant): Promise<void> {
  const { machine, knowledge } = process;
  const { sent, acknowledged } = knowledge;
  const before = read(process);
  checkAcknowledged(before, knowledge);
  checkDamage(before, knowledge);
  if (machine.world.pending.length === 0 && before.tail !== '') knowledge.tails.add(before.tail);
  checkKept(process);

  if (before.damaged.length > 0) await repair(process, before);
  const log = await open(process);
  if (read(process).bytes !== before.lines.join('')) throw new Violation('it changed the lines');
  if (log.size !== before.lines.length)
    throw new Violation(`${before.lines.length} plants became ${log.size}`);
  const isAcknowledged = (plant: NewPlant): boolean => acknowledged.get(plant.id) === lineOf(plant);
  const plants = [...sent.values()];
  const others = plants.filter((plant) => !isAcknowledged(plant));
  await send(process, log, plants.filter(isAcknowledged));
  await send(process, log, [...others, newPlant]);
  if (!acknowledged.has(newPlant.id)) throw new Violation('it takes no new plant');
  await log.close();

  const after = read(process);
  checkAcknowledged(after, knowledge);
  if (after.damaged.length > 0 || after.tail !== '') throw new Violation('the log is not whole');
  checkKept(process);
  checkNames(process);
}

/** Moves the damaged lines and the torn tail away. A log with such lines cannot be opened before. */
async function repair(process: Process, { bytes, lines, damaged }: Reading): Promise<void> {
  const { fs, path, knowledge } = process;
  const [first] = damaged;
  const refusal = `${path}: line ${first?.number}, at byte ${first?.offset}: `;
  const outcome = await open(process).then(
    () => 'it was opened',
    (error: unknown) => (error as Error).message,
  );
  if (!outcome.startsWith(refusal)) throw new Violation(`not refused as damaged: ${outcome}`);
  if (read(process).bytes !== bytes) throw new Violation('a damaged log was changed');
  await repairLog(fs, path, () => undefined);
  for (const { text } of damaged) knowledge.damaged.set(text, 'moved');
  if (read(process).bytes !== lines.join(''))
    throw new Violation('the repair changed what was not damaged');
  checkKept(process);
}

/** What a log holds, by a plain reading of its bytes. */
interface Reading {
  readonly bytes: string;
  /** The lines that clients have sent, each the first of its id. */
  readonly lines: readonly string[];
  /** All other lines. */
  readonly damaged: readonly { number: number; offset: number; text: string }[];
  readonly tail: string;
}

function read({ machine, path, knowledge: { sent } }: Process): Reading {
  const bytes = textOf(machine, path);
  const texts = bytes.split(/(?<=\n)/);
  let tail = bytes.endsWith('\n') ? '' : (texts.pop() ?? '');
  // A line that lacks only its newline is kept, even if a power cut has left zeros in its place.
  const line = `${tail.replace(/\0+$/, '')}\n`;
  if (sent.has(line)) {
    texts.push(line);
    tail = '';
  }
  const lines: string[] = [];
  const damaged: Reading['damaged'][number][] = [];
  const ids = new Set<bigint>();
  let offset = 0;
  for (const [index, text] of texts.entries()) {
    const id = sent.get(text)?.id;
    if (id === undefined || ids.has(id)) damaged.push({ number: index + 1, offset, text });
    else lines.push(text);
    if (id !== undefined) ids.add(id);
    offset += text.length;
  }
  return { bytes, lines, damaged, tail };
}

function textOf(machine: Machine, path: string): string {
  return machine.filesIn(dirname(path)).get(basename(path))?.toString('latin1') ?? '';
}

function checkAcknowledged({ lines }: Reading, { acknowledged }: Knowledge): void {
  for (const line of acknowledged.values())
    if (!lines.includes(line)) throw new Violation(`${shown(line)} was lost`);
}

/** A line may be damaged only if a part of it was in a write that a power cut interrupted. */
function checkDamage({ damaged }: Reading, knowledge: Knowledge): void {
  for (const { number, offset, text } of damaged) {
    const isKnown = knowledge.damaged.get(text) === 'in the log';
    if (!isKnown && !knowledge.interrupted.some((write) => hasHoleIn(write, offset, text)))
      throw new Violation(`line ${number} is damaged: ${shown(text)}`);
    knowledge.damaged.set(text, 'in the log');
  }
}

/** Whether a part of a write is missing in a line. */
function hasHoleIn({ offset, bytes }: InterruptedWrite, start: number, line: string): boolean {
  const from = Math.max(offset, start);
  const written = bytes.toString('latin1').slice(from - offset, start + line.length - offset);
  return written !== line.slice(from - start, from - start + written.length);
}

/** Torn tails and damaged lines are in the log until they are in another file. */
function checkKept({ machine, path, knowledge: { tails, damaged } }: Process): void {
  const files = machine.filesIn(dirname(path));
  const log = textOf(machine, path);
  files.delete(basename(path));
  const others = [...files.values()].map((content) => content.toString('latin1'));
  for (const tail of tails)
    if (!log.includes(tail) && !others.some((each) => each.includes(tail)))
      throw new Violation(`the torn tail ${shown(tail)} was lost`);
  for (const [line, place] of damaged)
    if (
      !(place === 'in the log' && log.includes(line)) &&
      !others.some((each) => each.includes(line))
    )
      throw new Violation(`the damaged line ${shown(line)} was lost`);
}

const SIDE_FILE = /^\.(?:torn|damaged)-[0-9a-f]{16}$/;

/** There are no files but the log and those that its document names. */
function checkNames({ machine, path }: Process): void {
  const log = basename(path);
  for (const name of machine.filesIn(dirname(path)).keys())
    if (name !== log && !(name.startsWith(log) && SIDE_FILE.test(name.slice(log.length))))
      throw new Violation(`${name} was left`);
}

/** A text as it is shown in a message. */
function shown(text: string): string {
  return JSON.stringify(text.length > 100 ? `${text.slice(0, 50)}…${text.slice(-30)}` : text);
}
