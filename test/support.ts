export * from './certificate.js';
export * from './client.js';
export * from './service.js';
export * from './stores.js';
