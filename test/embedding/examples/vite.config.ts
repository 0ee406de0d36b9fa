import { readFileSync } from 'node:fs';

export default ({ command, mode }: { readonly command: string; readonly mode: string }) => {
  // `vite build`, and tests with Vitest, need no proxy, and may run where there is no token.
  if (command === 'build' || mode === 'test') return {};
  const [token] = readFileSync('../plant-store/data/token', 'utf8').split('\n');
  return {
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
};
