/* SIGHUP renews the certificate. */
import { writeFileSync } from 'node:fs';
import { get } from 'node:https';
import { join } from 'node:path';

import t from 'tap';

import { selfSigned } from '../certificate.js';
import { TOKEN } from '../client.js';
import { scrape } from '../metrics.js';
import { startLoad } from './load.js';
import { start } from './program.js';

const SETTINGS = {
  PLANT_STORE_TOKEN_FILE: 'tokens',
  PLANT_STORE_TLS_CERT: 'cert',
  PLANT_STORE_TLS_KEY: 'key',
};

t.test('SIGHUP renews the certificate, and no request fails', async (t) => {
  const [old, renewed] = [selfSigned(), selfSigned()];
  const cwd = t.testdir({ tokens: TOKEN, cert: old.cert, key: old.key });
  const program = await start(t, { cwd, env: SETTINGS });
  const load = startLoad(program.port, [
    { secure: true, keepAlive: true },
    { secure: true, keepAlive: false },
  ]);
  const accepts = (ca: string): Promise<boolean> => isTrusted(program.port, ca);
  await load.goesOn();

  writeFileSync(join(cwd, 'cert'), renewed.cert);
  program.send('SIGHUP');
  const pair = `PLANT_STORE_TLS_CERT: ${cwd}/cert and PLANT_STORE_TLS_KEY: ${cwd}/key`;
  const misfit = `${pair}: are not a certificate and its private key in PEM (OpenSSL: key values mismatch); the certificate stays as it was`;
  await program.says('stderr', /stays as it was\n/);
  await program.says('stderr', /accepts 1 token\n/);
  t.strictSame(
    program.stderr.split('\n').toSorted(),
    ['', `plant-store: ${cwd}/tokens: accepts 1 token`, `plant-store: ${misfit}`].toSorted(),
  );
  t.equal(await accepts(old.cert), true);
  await load.goesOn();

  writeFileSync(join(cwd, 'key'), renewed.key);
  program.send('SIGHUP');
  await program.says('stderr', /cert: the certificate and its key were read again\n/);
  t.equal(await accepts(renewed.cert), true);
  t.equal(await accepts(old.cert), false);
  await load.goesOn();
  await load.stop();
  t.strictSame([...load.outcomes.keys()], ['200']);
  t.strictSame(await program.stop('SIGTERM'), { code: 0, signal: null });
});

t.test('tokens that cannot be read do not keep the certificate from being renewed', async (t) => {
  const [old, renewed] = [selfSigned(), selfSigned()];
  const cwd = t.testdir({ tokens: TOKEN, cert: old.cert, key: old.key });
  const program = await start(t, { cwd, env: SETTINGS });
  for (const [name, content] of Object.entries({ tokens: '', ...renewed }))
    writeFileSync(join(cwd, name), content);
  program.send('SIGHUP');
  await program.says('stderr', /the tokens stay as they were\n/);
  await program.says('stderr', /were read again\n/);
  t.equal(await isTrusted(program.port, renewed.cert), true);
});

/** A preload that runs code when the program opens its token file. */
const onOpeningTokens = (code: string): string => `import { promises } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
const { open } = promises;
let opening = 0;
promises.open = async (path, ...rest) => {
  if (path.endsWith('/tokens')) ${code}
  return open(path, ...rest);
};
syncBuiltinESMExports();`;

t.test('a reload of a file begins when the one before it is complete', async (t) => {
  const { cert, key } = selfSigned();
  const cwd = t.testdir({ tokens: TOKEN, cert, key });
  const preload = `${onOpeningTokens(`{
    if (opening++ > 0) console.error('two at a time');
    await new Promise(setImmediate);
    opening--;
  }`)}
  process.on('SIGUSR2', () => {
    for (let n = 0; n < 3; n++) process.emit('SIGHUP');
  });`;
  const program = await start(t, { cwd, env: SETTINGS, preload });
  program.send('SIGUSR2');
  await program.says('stderr', /(?:read again[^]+){3}$/);
  await program.says('stderr', /(?:accepts 1 token[^]+){3}$/);
  t.notMatch(program.stderr, 'two at a time');
});

t.test('a token file that hangs does not keep the certificate from being renewed', async (t) => {
  const [old, renewed] = [selfSigned(), selfSigned()];
  const cwd = t.testdir({ tokens: TOKEN, cert: old.cert, key: old.key });
  const preload = onOpeningTokens('if (opening++ > 0) await new Promise(() => undefined);');
  const program = await start(t, { cwd, env: SETTINGS, preload });
  for (const [name, content] of Object.entries(renewed)) writeFileSync(join(cwd, name), content);
  program.send('SIGHUP');
  await program.says('stderr', /were read again\n/);
  t.equal(await isTrusted(program.port, renewed.cert), true);
  t.notMatch(program.stderr, 'accepts', 'the tokens are still being read');
});

t.test('a certificate that expires soon is reported at the start and at each reload', async (t) => {
  const soon = new Date(Date.now() + 86_400_000);
  const expired = new Date('2001-01-01');
  const old = selfSigned(soon);
  const cwd = t.testdir({ tokens: TOKEN, cert: old.cert, key: old.key });
  const env = { ...SETTINGS, PLANT_STORE_MONITOR_PORT: '0' };
  const program = await start(t, { cwd, env });
  const [, monitor = ''] = await program.says('stdout', /^monitor: (http:.*)\n/m);
  const shown = async (): Promise<number | undefined> =>
    (await scrape(monitor)).get('plant_store_tls_certificate_not_after_timestamp_seconds');
  t.equal(await shown(), Math.floor(Number(soon) / 1e3));
  const about = `PLANT_STORE_TLS_CERT: ${cwd}/cert: the certificate`;
  await program.says('stderr', new RegExp(`^plant-store: ${about} expires at .*\n`));

  const renewed = selfSigned(expired);
  writeFileSync(join(cwd, 'cert'), renewed.cert);
  program.send('SIGHUP');
  await program.says('stderr', new RegExp(`stays as it was\n.*${about} expires at .*\n`));
  t.equal(await shown(), Math.floor(Number(soon) / 1e3), 'the certificate in use');
  writeFileSync(join(cwd, 'key'), renewed.key);
  program.send('SIGHUP');
  await program.says('stderr', new RegExp(`read again\n.*${about} expired at 2001.*\n`));
  t.equal(await shown(), Number(expired) / 1e3);
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
