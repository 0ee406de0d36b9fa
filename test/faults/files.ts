import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** The content of all files in a folder, but not of the sockets that are locks. */
export function filesIn(folder: string): Record<string, string> {
  const names = readdirSync(folder).filter((name) => !isLock(name));
  return Object.fromEntries(
    names.map((name) => [name, readFileSync(join(folder, name), 'latin1')]),
  );
}

export function isLock(name: string): boolean {
  return name.startsWith('.plant-store-');
}

/** How many torn tails recoveries have moved aside, in words. */
export function tornTails(folder: string): string {
  const tails = readdirSync(folder).filter((name) => name.includes('.torn-'));
  return `torn tails: ${tails.length}`;
}
