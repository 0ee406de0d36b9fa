/* A socket that the program inherits by the protocol of systemd, sd_listen_fds(3). */
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type AddressInfo, type ListenOptions, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import t, { type Test } from 'tap';

import { exchange, message } from '../../client.js';
import {
  ENV,
  failsToRun,
  MISUSED,
  SERVER,
  start,
  type LaunchOptions,
} from '../../system/program.js';

/** Options that set `LISTEN_PID` to the process id of the program, after `redirection` in bash. */
function inheriting(t: Test, redirection = 'true'): LaunchOptions {
  const script = `${redirection}; LISTEN_PID=$$ exec "$@"`;
  return {
    cwd: t.testdir(),
    env: { ...ENV, LISTEN_FDS: '1' },
    under: ['env', '-u', 'PLANT_STORE_PORT'],
    command: ['bash', '-euc', script, 'bash', process.execPath, SERVER],
  };
}

/** A server that listens, and its descriptor. */
async function listen(t: Test, place: ListenOptions): Promise<[Server, descriptor: number]> {
  const server = createServer().listen(place);
  t.teardown(() => server.close());
  await once(server, 'listening');
  const { _handle } = server as Server & { readonly _handle: { readonly fd: number } };
  return [server, _handle.fd];
}

t.test('an inherited socket is used with its address', async (t) => {
  const [server, descriptor] = await listen(t, { host: '127.0.0.1', port: 0 });
  const { port } = server.address() as AddressInfo;
  const program = await start(t, { ...inheriting(t), descriptor });
  t.equal(program.url, `http://127.0.0.1:${port}`);
  // Only the program accepts connections from now on.
  server.close();
  t.equal((await exchange(t, port, message())).status, 200);
});

t.test('the socket must be a listening TCP socket', async (t) => {
  const fault = (reason: string): string[] => [
    `LISTEN_FDS: cannot listen on descriptor 3: ${reason}`,
  ];
  const invalid = fault('invalid argument (EINVAL)');
  await failsToRun(t, MISUSED, invalid, inheriting(t, 'exec 3</dev/null'));
  // The path of a Unix socket has at most 107 bytes.
  const folder = mkdtempSync(join(tmpdir(), 'plant-store-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const [, descriptor] = await listen(t, { path: join(folder, 'socket') });
  await failsToRun(t, MISUSED, fault('it is not TCP'), { ...inheriting(t), descriptor });
});
