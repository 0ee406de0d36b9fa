import type { NewPlant } from '../../dist/plant.js';
import { lineOf } from '../log/support.js';
import type { WriteEffect } from './disk.js';

/**
 * What clients and operators know about a log. A crash does not change this. Lines are in Latin-1.
 */
export interface Knowledge {
  /** The plants that were sent, by their lines. */
  readonly sent: Map<string, NewPlant>;
  /** The lines of the plants that were acknowledged, by their ids. */
  readonly acknowledged: Map<bigint, string>;
  /** The damaged lines that are in the log. */
  readonly damaged: Set<string>;
  /**
   * The damaged lines in the log, the damaged lines that a repair has removed, and the torn tails
   * that were durable. All of them must be in the log or in another file.
   */
  readonly kept: Set<string>;
  /** The writes to the log that the last power cut interrupted. */
  readonly interrupted: readonly WriteEffect[];
  /** Whether it is certain that the log is marked as modified. */
  isMarked: boolean;
}

/**
 * What is known about a log with the lines of these plants and, after them, other bytes: damaged
 * lines and a torn tail.
 */
export function knowledgeOf(plants: readonly NewPlant[] = [], others = ''): Knowledge {
  const kept = others.split(/(?<=\n)/);
  return {
    sent: new Map(plants.map((plant) => [lineOf(plant), plant])),
    acknowledged: new Map(plants.map((plant) => [plant.id, lineOf(plant)])),
    damaged: new Set(kept.filter((text) => text.endsWith('\n'))),
    kept: new Set(kept),
    interrupted: [],
    isMarked: false,
  };
}

export function copyOf(knowledge: Knowledge): Knowledge {
  const { sent, acknowledged, damaged, kept } = knowledge;
  return {
    ...knowledge,
    sent: new Map(sent),
    acknowledged: new Map(acknowledged),
    damaged: new Set(damaged),
    kept: new Set(kept),
  };
}

/** A text that is the same for equal knowledge. */
export function keyOfKnowledge(knowledge: Knowledge): string {
  const { sent, acknowledged, damaged, kept, interrupted, isMarked } = knowledge;
  const sets = [sent.keys(), acknowledged.values(), damaged, kept].map((set) => [...set].sort());
  const writes = interrupted.map((write) => Object.values(write).join(' '));
  return JSON.stringify([...sets, writes, isMarked]);
}
