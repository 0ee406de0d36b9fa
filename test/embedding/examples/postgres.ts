import { createServer } from 'node:http';
import { createPlantHandler } from 'plant-store';
import { openPostgresStore } from 'plant-store/postgres';

const store = await openPostgresStore({ url: 'postgres://plants:secret@db1,db2/plants' });
createServer(createPlantHandler({ store, tokens: ['a-token'] })).listen(8080);
