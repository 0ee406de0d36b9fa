import { ok, rejects } from 'node:assert/strict';
import { basename, dirname } from 'node:path';

import { syncFolder } from '../../dist/log/files.js';
import { openLog, type PlantLog } from '../../dist/log/log.js';
import { repairLog } from '../../dist/log/repair.js';
import type { NewPlant } from '../../dist/plant.js';
import { PlantStoreError } from '../../dist/store.js';
import { lineOf } from '../log/support.js';
import type { WriteEffect } from './disk.js';
import type { Knowledge } from './knowledge.js';
import type { Machine } from './simulated-fs.js';

/** The path of the log in every workload. */
export const LOG = '/srv/garden/data/plants.jsonl';
const MARK = `${LOG}.modified`;

/** A process that uses a log. */
export interface SimulatedProcess {
  readonly machine: Machine;
  readonly knowledge: Knowledge;
}

export function open({ machine: { fs } }: SimulatedProcess): Promise<PlantLog> {
  return openLog(fs, LOG, { report: () => undefined });
}

/** Sends plants as clients do, and checks the answers. */
export async function send(
  { knowledge: { sent, acknowledged } }: SimulatedProcess,
  log: PlantLog,
  plants: readonly NewPlant[],
): Promise<void> {
  async function sendOne(plant: NewPlant): Promise<void> {
    const line = lineOf(plant);
    sent.set(line, plant);
    const wasAcknowledged = acknowledged.get(plant.id) === line;
    const answer = await log.add(plant).catch(codeOf);
    const known = acknowledged.get(plant.id);
    ok(answer !== 'created' || !wasAcknowledged, `${shown(line)} was lost`);
    if (answer === 'created' || answer === 'unchanged') {
      ok((known ?? line) === line, `${shown(line)} replaced another plant`);
      acknowledged.set(plant.id, line);
    }
    const ofSameId = [...sent.values()].filter(({ id }) => id === plant.id);
    const mayConflict = known !== line && ofSameId.length > 1;
    ok(answer !== 'conflict' || mayConflict, `${shown(line)} was refused as a conflict`);
  }
  await Promise.all(plants.map(sendOne));
}

function codeOf(error: unknown): string {
  if (error instanceof PlantStoreError) return error.code;
  throw error;
}

/**
 * Starts a process after a crash, and checks that the log has kept every promise. Clients send all
 * plants again that were not acknowledged, and a new one.
 */
export async function recover(process: SimulatedProcess, newPlant: NewPlant): Promise<void> {
  const { machine, knowledge } = process;
  const { sent, acknowledged, kept } = knowledge;
  const before = read(process);
  expectAcknowledged(before, knowledge);
  expectExplainedDamage(before, knowledge);
  if (machine.world.pending.length === 0) kept.add(before.tail);
  expectKept(process);

  await expectRefusedIfMarked(process);
  if (before.damaged.length > 0) await repair(process, before);
  const log = await open(process);
  kept.add(before.tail);
  ok(read(process).bytes === before.lines.join(''), 'it changed the lines');
  ok(log.size === before.lines.length, `${before.lines.length} plants became ${log.size}`);
  const isAcknowledged = (plant: NewPlant): boolean => acknowledged.get(plant.id) === lineOf(plant);
  const plants = [...sent.values()];
  const others = plants.filter((plant) => !isAcknowledged(plant));
  await send(process, log, plants.filter(isAcknowledged));
  await send(process, log, [...others, newPlant]);
  ok(acknowledged.has(newPlant.id), 'it takes no new plant');
  await log.close();
  ok(!log.poisoned.aborted, 'it does not know its own size');

  const after = read(process);
  expectAcknowledged(after, knowledge);
  ok(after.damaged.length === 0 && after.tail === '', 'the log is not whole');
  expectKept(process);
  expectKnownNames(process);
}

/** Checks that a marked log is not opened, and removes the mark as an operator does. */
async function expectRefusedIfMarked(process: SimulatedProcess): Promise<void> {
  const { machine, knowledge } = process;
  const isMarked = machine.inoOf(MARK) !== undefined;
  ok(isMarked || !knowledge.isMarked, 'the mark was lost');
  knowledge.isMarked = false;
  if (!isMarked) return;
  await rejects(open(process), /was modified/);
  await machine.fs.unlink(MARK);
}

/**
 * Repairs the log, which removes the damaged lines and the torn tail. Checks that the log cannot be
 * opened before. If the repair would keep no plant, moves the log away as an operator does.
 */
async function repair(
  process: SimulatedProcess,
  { bytes, lines, damaged }: Reading,
): Promise<void> {
  const { machine, knowledge } = process;
  const [first] = damaged;
  const refusal = `${LOG}: line ${first?.number}, at byte ${first?.offset}: `;
  await rejects(open(process), ({ message }: Error) => message.startsWith(refusal));
  ok(read(process).bytes === bytes, 'a damaged log was changed');
  if (lines.length === 0) {
    await rejects(repairLog(machine.fs, LOG), /would keep no plant/);
    ok(read(process).bytes === bytes, 'a log without plants was changed');
    await moveAway(process);
  } else await repairLog(machine.fs, LOG);
  knowledge.damaged.clear();
  ok(read(process).bytes === lines.join(''), 'the repair changed what was not damaged');
  expectKept(process);
}

async function moveAway({ machine: { fs } }: SimulatedProcess): Promise<void> {
  await fs.rename(LOG, `${LOG}.moved`);
  await syncFolder(fs, dirname(LOG));
}

/** The content of a log, read without the code of the program. */
interface Reading {
  readonly bytes: string;
  /** The lines that clients have sent, each the first of its id. */
  readonly lines: readonly string[];
  /** All other lines. */
  readonly damaged: readonly { number: number; offset: number; text: string }[];
  readonly tail: string;
}

function read({ machine, knowledge: { sent } }: SimulatedProcess): Reading {
  const bytes = machine.filesIn(dirname(LOG)).get(basename(LOG)) ?? '';
  const texts = bytes.split(/(?<=\n)/);
  let tail = bytes.endsWith('\n') ? '' : (texts.pop() ?? '');
  // A line that lacks only its newline is kept, even if a power cut has left zeros in place of the
  // newline.
  const line = `${tail.replace(/\0+$/, '')}\n`;
  if (sent.has(line)) {
    texts.push(line);
    tail = tail.slice(line.length - 1);
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

function expectAcknowledged({ lines }: Reading, { acknowledged }: Knowledge): void {
  for (const line of acknowledged.values()) ok(lines.includes(line), `${shown(line)} was lost`);
}

/**
 * Checks that a line is damaged only if a part of the line was in a write that a power cut
 * interrupted.
 */
function expectExplainedDamage(reading: Reading, { damaged, kept, interrupted }: Knowledge): void {
  for (const { number, offset, text } of reading.damaged) {
    const isKnown =
      damaged.has(text) || interrupted.some((write) => hasHoleIn(write, offset, text));
    ok(isKnown, `line ${number} is damaged: ${shown(text)}`);
    damaged.add(text);
    kept.add(text);
  }
}

/** Whether a part of a write is missing in a line. */
function hasHoleIn({ offset, bytes }: WriteEffect, start: number, line: string): boolean {
  const from = Math.max(offset, start);
  const written = bytes.toString('latin1').slice(from - offset, start + line.length - offset);
  return written !== line.slice(from - start, from - start + written.length);
}

/** Checks that all torn tails and damaged lines are still in the log, or in another file. */
function expectKept({ machine, knowledge: { kept } }: SimulatedProcess): void {
  const bytes = [...machine.filesIn(dirname(LOG)).values()].join('|');
  for (const text of kept) ok(bytes.includes(text), `${shown(text)} was not kept`);
}

const NAMES = /^plants\.jsonl(?:\.(?:torn|damaged)-[0-9a-f]{16}|\.copy|\.moved)?$/;

/**
 * Checks that there are no files but the log, the files that the document of the log names, and a
 * copy that an operator began.
 */
function expectKnownNames({ machine }: SimulatedProcess): void {
  for (const name of machine.filesIn(dirname(LOG)).keys()) ok(NAMES.test(name), `${name} was left`);
}

/** A text as it is shown in a message. */
function shown(text: string): string {
  return JSON.stringify(text.length > 100 ? `${text.slice(0, 50)}…${text.slice(-30)}` : text);
}
