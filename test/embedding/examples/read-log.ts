import { readPlantLog } from 'plant-store';

for await (const { id, name, tag } of readPlantLog('data/plants.jsonl')) console.log(id, name, tag);
