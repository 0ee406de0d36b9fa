import type { NewPlant } from '../../dist/plant.js';
import { lineOf } from '../log/support.js';
import type { WriteEffect } from './disk.js';

/** What clients and operators know. No crash takes it away. Bytes are in latin1. */
export interface Knowledge {
  /** The plants that were sent, by their lines. */
  readonly sent: Map<string, NewPlant>;
  /** The lines of the plants that were acknowledged, by their ids. */
  readonly acknowledged: Map<bigint, string>;
  /** The damaged lines that are in the log. */
  readonly damaged: Set<string>;
  /**
   * These lines, those that a repair has removed, and durable torn tails. All of them are in the
   * log, or in another file.
   */
  readonly kept: Set<string>;
  /** The writes to the log that the last power cut interrupted. */
  readonly interrupted: readonly WriteEffect[];
  /** Whether the log is marked as modified for sure. */
  isMarked: boolean;
}

/**
 * What is known of a log with the lines of these plants, then other bytes: damaged lines, and a
 * torn tail.
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
