import { readdirSync, readFileSync } from 'node:fs';

import t from 'tap';

import { typeFaults } from '../helpers/compile.js';
import { blocksIn } from '../helpers/documents.js';

/** Imports of all that the package exports, and of what examples use of Node without an import. */
const USED = `
  import { readFile } from 'node:fs/promises';
  import { createServer } from 'node:http';
  import { ErrorSchema, NewPlantSchema, openapi, PlantSchema, PlantStoreError } from 'plant-store';
  import { copyPlant, createPlantHandler, openPlantLog, readPlantLog } from 'plant-store';
  import type { CommitMessage, ErrorBody, HttpRequest, HttpResponse, NewPlant } from 'plant-store';
  import type { Plant, PlantHandlerLimits, PlantHandlerOptions, PlantLog } from 'plant-store';
  import type { PlantLogOptions, PlantStore, PlantStoreErrorCode, Report } from 'plant-store';
  import type { ResponseMessage } from 'plant-store';
  import { isTransient, openPostgresStore, readPostgresPlants } from 'plant-store/postgres';
  import type { Password, PostgresStore, PostgresStoreOptions } from 'plant-store/postgres';
`;
/**
 * Declarations of what examples leave to the application. Some examples declare these names
 * themselves.
 */
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
  const paths = readdirSync('src', { encoding: 'utf8', recursive: true });
  for (const path of paths.filter((each) => each.endsWith('.ts'))) {
    const text = readFileSync(`src/${path}`, 'utf8').replace(/^ *\* ?/gm, '');
    for (const [n, code] of blocksIn(text, 'ts').entries())
      programs[`${path.replaceAll('/', '-')}-${n}.ts`] = USED + code;
  }
  t.ok(Object.keys(programs).length > 20);
  const compilation = { release: '6', resolution: 'nodenext', programs } as const;
  t.equal(await typeFaults(t.testdir(programs), compilation), '');
});
