/* The service over a log that tells clients too early: its writes are not waited for. */
import { constants } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

import { createPlantHandler } from '../../dist/index.js';
import { nodeFileSystem, type FileSystem } from '../../dist/log/file.js';
import { openLog } from '../../dist/log/log.js';

const { PLANT_STORE_FILE = '', PLANT_STORE_TOKEN = '' } = process.env;

const unsynced: FileSystem = {
  ...nodeFileSystem,
  open: (path, flags, mode) => nodeFileSystem.open(path, flags & ~constants.O_DSYNC, mode),
};

const store = await openLog(unsynced, PLANT_STORE_FILE);
const server = createServer(createPlantHandler({ store, tokens: [PLANT_STORE_TOKEN] }));
server.listen(0, '127.0.0.1', () => {
  const { port } = server.address() as AddressInfo;
  console.log(`plant-store listening on http://127.0.0.1:${port}`);
});
