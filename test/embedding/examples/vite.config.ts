import { readFileSync } from 'node:fs';

const [token] = readFileSync('../plant-store/data/token', 'utf8').split('\n');

export default {
  server: {
    proxy: {
      // Only this path. No page of the application can have it.
      '^/plants$': {
        target: 'http://127.0.0.1:8080',
        headers: { Authorization: `Bearer ${token}` },
      },
    },
  },
};
