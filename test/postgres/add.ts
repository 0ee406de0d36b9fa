/*
 * Adds one plant to the database with this URL and prints the outcome or, if the store cannot be
 * opened, why:
 *
 *     node .test/postgres/add.js URL
 */
import { openPostgresStore } from '../../dist/postgres/index.js';

const [, , url = ''] = process.argv;
try {
  const store = await openPostgresStore({ url });
  console.log(await store.add({ id: 7n, name: 'Boston fern' }));
  await store.close();
} catch (error) {
  console.log((error as Error).message);
}
