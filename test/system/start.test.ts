/* Signals that arrive while the program starts. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

import t from 'tap';

import { DONE, ENV, launch, SERVER, serving, start } from './program.js';

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

/** The first import that the program makes once it handles signals, and a late one. */
const IMPORTS = ['./program/main.js', 'typebox/schema'];

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

/** Whether a process handles SIGHUP, which is signal 1. */
function handlesHangup(pid: number): boolean {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const [, caught = '0'] = /^SigCgt:\s*([0-9a-f]+)$/m.exec(status) ?? [];
  return (BigInt(`0x${caught}`) & 1n) === 1n;
}

t.test('from the first signal that it handles on, SIGHUP never ends the program', async (t) => {
  for (let round = 0; round < 2; round++) {
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

const hasScript = spawnSync('script', ['-qec', 'true', '/dev/null']).status === 0;

t.test(
  'with a terminal as its standard input, the program stops on SIGHUP',
  { skip: !hasScript && 'needs script of util-linux' },
  async (t) => {
    const cwd = t.testdir();
    const command = ['script', '-qefc', `exec '${process.execPath}' '${SERVER}'`, '/dev/null'];
    const program = launch(t, { cwd, env: ENV, command });
    await program.says('stdout', /token: from PLANT_STORE_TOKEN\r\n/);
    const children = readFileSync(`/proc/${program.pid}/task/${program.pid}/children`, 'utf8');
    process.kill(Number.parseInt(children), 'SIGHUP');
    t.strictSame(await program.ended, DONE);
    t.match(program.stdout, /SIGHUP: stopping, because the standard input is a terminal\r\n$/);
  },
);
