// Loads the types of Node, which the published declarations use. Without this reference, an
// application would have to name them in `types` of its tsconfig.
/// <reference types="node" preserve="true" />
export type { CommitMessage } from './channels.js';
export { ErrorSchema, type ErrorBody } from './http/failures.js';
export { createPlantHandler, type PlantHandler, type PlantHandlerOptions } from './http/handler.js';
export type { PlantHandlerLimits } from './http/limits.js';
export { openapi } from './http/openapi.js';
export type { ResponseMessage } from './http/published.js';
export type { HttpRequest, HttpResponse } from './http/request.js';
export { readPlantLog } from './log/read.js';
export { openPlantLog, type PlantLog, type PlantLogOptions } from './log/log.js';
export { copyPlant, NewPlantSchema, PlantSchema } from './plant.js';
export type { NewPlant, Plant, StoredPlant } from './plant.js';
export type { Report } from './report.js';
export { PlantStoreError, type PlantStore, type PlantStoreErrorCode } from './store.js';
