/* Signals that arrive while the program starts. */
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';

import t from 'tap';

import { listen } from '../service.js';
import { DONE, ENV, launch, serving, start } from './program.js';

/** A preload that sends the process a signal when it first resolves an import. */
const onImport = (specifier: string, signal: NodeJS.Signals): string => {
  const hooks = `let isSent = false;
    export async function resolve(specifier, context, next) {
      if (!isSent && specifier === '${specifier}') {
        isSent = true;
        process.kill(process.pid, '${signal}');
      }
      return next(specifier, context);
    }`;
  return `import { register } from 'node:module';
    register('data:text/javascript,${encodeURIComponent(hooks).replaceAll("'", '%27')}');`;
};

/** Imports, from the first one that the program makes once it handles signals. */
const IMPORTS = ['./program/main.js', '../log/log.js', 'node:http', 'typebox/schema'];

for (const specifier of IMPORTS) {
  t.test(`a program that gets SIGHUP while it imports ${specifier} serves`, async (t) => {
    const preload = onImport(specifier, 'SIGHUP');
    const program = await start(t, { cwd: t.testdir(), env: ENV, preload });
    await program.says('stderr', /SIGHUP: the tokens in PLANT_STORE_TOKEN change only/);
    t.strictSame(await program.stop('SIGTERM'), DONE);
  });

  t.test(`a program that gets SIGTERM while it imports ${specifier} ends well`, async (t) => {
    const preload = onImport(specifier, 'SIGTERM');
    const program = launch(t, { cwd: t.testdir(), env: ENV, preload });
    t.strictSame(await program.ended, DONE);
    t.equal(program.stdout, '');
  });
}

t.test('a program for a database that gets SIGTERM while it starts ends well', async (t) => {
  // It never answers: the signal may be delivered after a connection to it.
  const database = createServer();
  const PLANT_STORE_DATABASE_URL = `postgres://plants@127.0.0.1:${await listen(t, database)}/plants`;
  const env = { PLANT_STORE_TOKEN: 'a', PLANT_STORE_DATABASE_URL };
  const preload = onImport('./program/main.js', 'SIGTERM');
  t.strictSame(await launch(t, { cwd: t.testdir(), env, preload }).ended, DONE);
});

/** Whether a process handles SIGHUP, which is signal 1. */
function handlesHangup(pid: number): boolean {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const [, caught = '0'] = /^SigCgt:\s*([0-9a-f]+)$/m.exec(status) ?? [];
  return (BigInt(`0x${caught}`) & 1n) === 1n;
}

t.test('from the first signal that it handles on, SIGHUP never ends the program', async (t) => {
  for (let round = 0; round < 5; round++) {
    const program = launch(t, { cwd: t.testdir(), env: ENV });
    while (!handlesHangup(program.pid)) await new Promise(setImmediate);
    const hangups = setInterval(() => program.send('SIGHUP'), 1);
    t.teardown(() => clearInterval(hangups));
    await serving(program, 'token');
    clearInterval(hangups);
    program.send('SIGTERM');
    t.strictSame(await program.ended, DONE);
  }
});
