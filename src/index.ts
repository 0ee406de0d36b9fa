/// <reference types="node" preserve="true" />
export { ErrorSchema, type ErrorBody } from './answer.js';
export { createPlantHandler, type PlantHandler, type PlantHandlerOptions } from './handler.js';
export { openPlantLog, type PlantLog, type PlantLogOptions } from './log/log.js';
export { openapi } from './openapi.js';
export { NewPlantSchema, PlantSchema, type NewPlant, type Plant } from './plant.js';
export { PlantStoreError, type PlantStore, type PlantStoreErrorCode } from './store.js';
