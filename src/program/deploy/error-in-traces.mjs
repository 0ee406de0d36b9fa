import { subscribe } from 'node:diagnostics_channel';
import { trace } from '@opentelemetry/api';

subscribe('plant-store:response', ({ error }) => {
  trace.getActiveSpan()?.setAttribute('plant_store.error', error);
});
