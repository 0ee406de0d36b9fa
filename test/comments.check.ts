import { readdirSync, readFileSync } from 'node:fs';

import t from 'tap';

import { typeFaults } from './compile.js';
import { blocksIn } from './readme.js';

/** What examples use without an import. */
const USED = `
  import { readFile } from 'node:fs/promises';
  import { createServer } from 'node:http';
  import { ErrorSchema, NewPlantSchema, openapi, PlantSchema, PlantStoreError } from 'plant-store';
  import { copyPlant, createPlantHandler, openPlantLog, readPlantLog } from 'plant-store';
  import type { CommitMessage, ErrorBody, PlantLog, PlantStore } from 'plant-store';
  import type { PlantStoreErrorCode, ResponseMessage } from 'plant-store';
  import { isTransient, openPostgresStore } from 'plant-store/postgres';
  import type { Password, PostgresStore } from 'plant-store/postgres';
`;
/** What they leave to the application. Some of it is declared by others. */
const GIVEN = `
  import type { Server } from 'node:http';
  import type { PlantHandler, PlantLog, PlantStore } from 'plant-store';
  import type { PostgresStore } from 'plant-store/postgres';
  declare global {
    const body: string, token: string, url: string, response: Response, error: unknown;
    const handler: PlantHandler, log: PlantLog, store: PostgresStore, server: Server;
    const chooseAnotherId: () => void, retry: () => void, openEmptyStore: () => PlantStore;
  }
`;

t.test('each example in a comment of the source compiles as it is printed', async (t) => {
  const programs: Record<string, string> = { 'given.d.ts': GIVEN };
  for (const path of readdirSync('src', { encoding: 'utf8', recursive: true }).filter(isSource)) {
    const text = readFileSync(`src/${path}`, 'utf8').replace(/^ *\* ?/gm, '');
    for (const [n, code] of blocksIn(text, 'ts').entries())
      programs[`${path.replaceAll('/', '-')}-${n}.ts`] = USED + code;
  }
  t.ok(Object.keys(programs).length > 20);
  const compilation = { release: '6', resolution: 'nodenext', programs } as const;
  t.equal(await typeFaults(t.testdir(programs), compilation), '');
});

function isSource(path: string): boolean {
  return path.endsWith('.ts');
}
