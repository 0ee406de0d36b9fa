/* SIGHUP renews the certificate. */
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { get } from 'node:https';
import { join } from 'node:path';

import t from 'tap';

import { selfSigned } from '../certificate.js';
import { message, openSocket, TOKEN } from '../client.js';
import { startHere } from './program.js';

const SETTINGS = {
  PLANT_STORE_TOKEN_FILE: 'tokens',
  PLANT_STORE_TLS_CERT: 'cert',
  PLANT_STORE_TLS_KEY: 'key',
};

t.test('SIGHUP renews the certificate, and open connections stay', async (t) => {
  const [old, renewed] = [selfSigned(), selfSigned()];
  const cwd = t.testdir({ tokens: TOKEN, cert: old.cert, key: old.key });
  const program = await startHere(t, { cwd, env: SETTINGS });
  const accepts = (ca: string): Promise<boolean> => isTrusted(program.port, ca);
  const kept = await openSocket(program.port, true);

  writeFileSync(join(cwd, 'cert'), renewed.cert);
  program.send('SIGHUP');
  const misfit = `${cwd}/key: is not the private key of the first certificate in ${cwd}/cert; the certificate stays as it was`;
  await program.says('stderr', /stays as it was\n/);
  await program.says('stderr', /accepts 1 token\n/);
  t.strictSame(
    program.stderr.split('\n').toSorted(),
    ['', `plant-store: ${cwd}/tokens: accepts 1 token`, `plant-store: ${misfit}`].toSorted(),
  );
  t.equal(await accepts(old.cert), true);

  writeFileSync(join(cwd, 'key'), renewed.key);
  // They do not keep the certificate from being renewed.
  writeFileSync(join(cwd, 'tokens'), 'not a token');
  program.send('SIGHUP');
  await program.says('stderr', /the tokens stay as they were\n/);
  await program.says('stderr', /cert: the certificate and its key were read again\n/);
  t.equal(await accepts(renewed.cert), true);
  t.equal(await accepts(old.cert), false);
  kept.write(message());
  const [answer] = (await once(kept, 'data')) as [Buffer];
  t.match(String(answer), / 200 OK\r\n/, 'on a connection that was there before');
  t.strictSame(await program.stop('SIGTERM'), { code: 0, signal: null });
});

/** Whether a client that trusts only this certificate accepts the server's. */
function isTrusted(port: number, ca: string): Promise<boolean> {
  const options = { host: '127.0.0.1', port, ca, servername: 'localhost', agent: false as const };
  return new Promise((resolve) => {
    get(options, (res) => {
      res.resume();
      resolve(true);
    }).on('error', () => resolve(false));
  });
}
