import { join } from 'node:path';

import t from 'tap';

import {
  createPlantHandler,
  openPlantLog,
  type PlantHandlerOptions,
  type PlantLogOptions,
} from '../../dist/index.js';
import { openPostgresStore, type PostgresStoreOptions } from '../../dist/postgres/index.js';
import { TOKEN } from '../helpers/client.js';
import { rows } from '../helpers/documents.js';
import { storeOf } from '../helpers/stores.js';

/**
 * The options that may be left out, each set to `undefined`. The compiler reports an option that is
 * missing here.
 */
type Unset<Options> = {
  readonly [
    Name in keyof Options as object extends Pick<Options, Name> ? Name : never
  ]-?: undefined;
};

const HANDLER: Unset<PlantHandlerOptions> = {
  maxBodyBytes: undefined,
  maxBufferedBytes: undefined,
  bodyTimeoutMs: undefined,
  report: undefined,
};

const LOG: Unset<PlantLogOptions> = {
  onProgress: undefined,
  signal: undefined,
  report: undefined,
};

const POSTGRES: Unset<PostgresStoreOptions> = {
  password: undefined,
  connections: undefined,
  timeoutMs: undefined,
  report: undefined,
};

t.test('every option may be undefined, which stands for its default', async (t) => {
  const store = storeOf(async () => 'created');
  t.doesNotThrow(() => createPlantHandler({ store, tokens: [TOKEN], ...HANDLER }));
  const log = await openPlantLog(join(t.testdir(), 'plants.jsonl'), LOG);
  await log.close();
  const url = 'postgres://plants@127.0.0.1:1/plants';
  await t.rejects(openPostgresStore({ url, ...POSTGRES }), { code: 'unavailable' });
});

t.test('the table of options has all options of the handler but store and tokens', async (t) => {
  const names = rows('Options of the handler').map(([name = '']) => name.replaceAll('`', ''));
  t.strictSame(names, Object.keys(HANDLER));
});
