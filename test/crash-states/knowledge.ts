import { encodeRecord } from '../../dist/log/record.js';
import type { NewPlant } from '../../dist/plant.js';
import { digestOf } from './disk.js';

/** What clients and operators know. No crash takes it away. Bytes are in latin1. */
export interface Knowledge {
  /** The plants that were sent, by their lines. */
  readonly sent: Map<string, NewPlant>;
  /** The lines of the plants that were acknowledged, by their ids. */
  readonly acknowledged: Map<bigint, string>;
  /** What once followed the last newline of the log, durably. */
  readonly tails: Set<string>;
  /** The damaged lines, and where they are. */
  readonly damaged: Map<string, 'in the log' | 'moved'>;
  /** The writes to the log that the last power cut interrupted. */
  readonly interrupted: readonly InterruptedWrite[];
}

export interface InterruptedWrite {
  readonly offset: number;
  readonly bytes: Buffer;
}

/** What is known of a log with these plants, and perhaps a tail or damaged lines. */
export function knowledgeOf(
  plants: readonly NewPlant[] = [],
  { tails = [], damaged = [] }: Partial<Record<'tails' | 'damaged', readonly string[]>> = {},
): Knowledge {
  return {
    sent: new Map(plants.map((plant) => [lineOf(plant), plant])),
    acknowledged: new Map(plants.map((plant) => [plant.id, lineOf(plant)])),
    tails: new Set(tails),
    damaged: new Map(damaged.map((line) => [line, 'in the log'])),
    interrupted: [],
  };
}

export function lineOf(plant: NewPlant): string {
  return Buffer.from(encodeRecord(plant)).toString('latin1');
}

export function copyOf({ sent, acknowledged, tails, damaged, interrupted }: Knowledge): Knowledge {
  return {
    sent: new Map(sent),
    acknowledged: new Map(acknowledged),
    tails: new Set(tails),
    damaged: new Map(damaged),
    interrupted,
  };
}

/** A text that is the same for equal knowledge. */
export function keyOfKnowledge(knowledge: Knowledge): string {
  const { sent, acknowledged, tails, damaged, interrupted } = knowledge;
  const sets = [sent.keys(), acknowledged.values(), tails, damaged].map((set) => [...set].sort());
  return JSON.stringify([
    ...sets,
    interrupted.map(({ offset, bytes }) => [offset, digestOf(bytes)]),
  ]);
}
