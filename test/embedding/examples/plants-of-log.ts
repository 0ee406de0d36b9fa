import { openPlantLog } from 'plant-store';

const log = await openPlantLog('data/plants.jsonl');
for await (const { id, name, tag } of log.plants()) console.log(id, name, tag);
await log.close();
