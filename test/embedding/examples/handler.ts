import { createPlantHandler, openPlantLog } from 'plant-store';

const store = await openPlantLog('data/plants.jsonl');
const handler = createPlantHandler({ store, tokens: ['a-secret-token'] });

export { handler, store };
