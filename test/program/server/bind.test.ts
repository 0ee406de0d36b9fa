/* The socket of the program: its own, or one that it inherits by the protocol of systemd, sd_listen_fds(3). */
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer, type AddressInfo, type ListenOptions, type Server } from 'node:net';
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

for (const isInherited of [false, true])
  t.test(
    `600 connections wait to be accepted on ${isInherited ? 'an inherited' : 'its own'} socket`,
    async (t) => {
      const [server, descriptor] = await listen(t, { host: '127.0.0.1', port: 0 });
      const options = isInherited
        ? { ...inheriting(t), descriptor }
        : { cwd: t.testdir(), env: ENV };
      const program = await start(t, options);
      // Only the program accepts connections from now on.
      server.close();
      // With Node's default of 511, the others would not be connected until the program goes on.
      program.send('SIGSTOP');
      const sockets = Array.from({ length: 600 }, () => connect(program.port, '127.0.0.1'));
      await t.resolves(Promise.all(sockets.map((socket) => once(socket, 'connect'))));
      for (const socket of sockets) socket.destroy();
    },
  );

t.test('the inherited socket must be a listening TCP socket', async (t) => {
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
