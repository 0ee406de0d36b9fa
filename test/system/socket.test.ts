/* A socket that the program inherits by the protocol of systemd, sd_listen_fds(3). */
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type AddressInfo, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import t, { type Test } from 'tap';

import { exchange, message, TOKEN } from '../client.js';
import { failsToRun, SERVER, start, type LaunchOptions } from './program.js';

const MISUSED = 2;

/** Options that set `LISTEN_PID` to the process id of the program, after `redirection` in bash. */
function inheriting(
  t: Test,
  env: Readonly<Record<string, string>> = {},
  redirection = 'true',
): LaunchOptions {
  const script = `${redirection}; LISTEN_PID=$$ exec "$@"`;
  return {
    cwd: t.testdir(),
    env: { PLANT_STORE_TOKEN: TOKEN, LISTEN_FDS: '1', ...env },
    under: ['env', '-u', 'PLANT_STORE_PORT'],
    command: ['bash', '-euc', script, 'bash', process.execPath, SERVER],
  };
}

/** The descriptor of a server that listens. */
function descriptorOf(server: Server): number {
  const { _handle } = server as Server & { readonly _handle: { readonly fd: number } };
  return _handle.fd;
}

async function listening(t: Test, server: Server): Promise<Server> {
  t.teardown(() => server.close());
  await once(server, 'listening');
  return server;
}

t.test('an inherited socket is used with its address', async (t) => {
  const server = await listening(t, createServer().listen(0, '127.0.0.1'));
  const { port } = server.address() as AddressInfo;
  const descriptor = descriptorOf(server);
  const program = await start(t, { ...inheriting(t), descriptor });
  t.equal(program.url, `http://127.0.0.1:${port}`);
  // Only the program accepts connections from now on.
  server.close();
  t.equal((await exchange(t, port, message())).status, 200);
});

t.test('there must be one socket, and no setting of an address', async (t) => {
  const options = { LISTEN_FDS: '2', PLANT_STORE_HOST: '::1', PLANT_STORE_PORT: '1' };
  const faults = [
    'LISTEN_FDS: must be 1',
    'PLANT_STORE_HOST: must not be set, because a socket is inherited (LISTEN_PID)',
    'PLANT_STORE_PORT: must not be set, because a socket is inherited (LISTEN_PID)',
  ];
  await failsToRun(t, MISUSED, faults, { ...inheriting(t, options), under: [] });
  for (const LISTEN_FDS of ['0', ''])
    await failsToRun(t, MISUSED, faults.slice(0, 1), inheriting(t, { LISTEN_FDS }));
});

t.test('the socket must be a listening TCP socket', async (t) => {
  const fault = (reason: string): string[] => [
    `LISTEN_FDS: cannot listen on descriptor 3: ${reason}`,
  ];
  const invalid = fault('invalid argument (EINVAL)');
  const peer = await listening(t, createServer().listen(0, '127.0.0.1'));
  const { port } = peer.address() as AddressInfo;
  const kinds = ['/dev/null', `/dev/udp/127.0.0.1/${port}`, `/dev/tcp/127.0.0.1/${port}`];
  for (const kind of kinds)
    await failsToRun(t, MISUSED, invalid, inheriting(t, {}, `exec 3<>${kind}`));

  // The path of a Unix socket has at most 107 bytes.
  const folder = mkdtempSync(join(tmpdir(), 'plant-store-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const local = await listening(t, createServer().listen(join(folder, 'socket')));
  const descriptor = descriptorOf(local);
  await failsToRun(t, MISUSED, fault('it is not TCP'), { ...inheriting(t), descriptor });
});

t.test('the variables for another process have no effect', async (t) => {
  const env = { LISTEN_PID: String(process.pid), LISTEN_FDS: '7', PLANT_STORE_TOKEN: TOKEN };
  const { port } = await start(t, { cwd: t.testdir(), env });
  t.equal((await exchange(t, port, message())).status, 200);
});
