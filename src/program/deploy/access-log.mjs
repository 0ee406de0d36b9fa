import { subscribe } from 'node:diagnostics_channel';

subscribe('plant-store:response', ({ request, status, error }) => {
  const { method, url, socket } = request ?? {};
  const client = socket?.remoteAddress;
  console.log(JSON.stringify({ time: new Date(), client, method, url, status, error }));
});
