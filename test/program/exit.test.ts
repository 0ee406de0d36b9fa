import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

import t, { type Test } from 'tap';

import { EXIT, failWith, LAST_CALLS_MS } from '../../dist/program/exit.js';
import { hasten, KILLED, KILLS_ITSELF, run, type Ending, type Process } from '../system/program.js';

t.test('a failure is reported one sentence a line, and returns the exit code', async (t) => {
  const written = t.capture(console, 'error', () => undefined);
  t.equal(failWith(EXIT.usage, 'the first fault', 'the second fault'), 2);
  t.equal(failWith(EXIT.failed, 'a reason'), 1);
  t.strictSame(
    written().map(({ args }) => args as unknown),
    [
      ['plant-store: the first fault'],
      ['plant-store: the second fault'],
      ['plant-store: a reason'],
    ],
  );
});

/** Runs a script that can use `exit` to its end. */
function runScript(t: Test, script: string): Promise<Process & Ending> {
  const url = JSON.stringify(pathToFileURL('dist/program/exit.js'));
  const source = `import dns from 'node:dns';
    import fs from 'node:fs';
    import { takeCoverage } from 'node:v8';
    import { exit } from ${url};
    ${script}`;
  const command = [process.execPath, '--input-type=module', '--eval', source];
  return run(t, { command, cwd: t.testdirName });
}

/** Calls that a thread of the pool makes. Each calls `done` when it has returned. */
const CALLS: Readonly<Record<string, string>> = {
  'fs.stat': `fs.stat('.', done);`,
  'fs.promises.stat': `void fs.promises.stat('.').then(done);`,
  'FileHandle.close': `const file = await fs.promises.open('.');
    await new Promise(setImmediate); // Until then, the call that opened it is listed.
    void file.close().then(done);`,
  'dns.lookup': `dns.lookup('localhost', done);`,
  'dns.lookupService': `dns.lookupService('127.0.0.1', 80, done);`,
};

for (const [name, call] of Object.entries(CALLS))
  t.test(`a process that ends waits for a call in progress: ${name}`, async (t) => {
    t.testdir();
    const script = `const done = () => console.log('done');
      const isCall = (name) => name.includes('Req');
      // The calls that have loaded the modules.
      while (process.getActiveResourcesInfo().some(isCall)) await new Promise(setImmediate);
      ${call}
      globalThis.setTimeout = () => undefined; // No matter how long the call takes.
      exit(3);`;
    const { code, stdout, stderr } = await runScript(t, script);
    t.strictSame({ code, stdout, stderr }, { code: 3, stdout: 'done\n', stderr: '' });
  });

/** Opening a FIFO blocks until it has a writer. */
const HANGS = `fs.open('pipe', 'r', () => undefined);
  exit(0);`;

/** Makes a function of the process write the coverage before it ends the process. */
const covered = (name: string): string => `const { ${name} } = process;
  process.${name} = (...args) => {
    takeCoverage();
    ${name}.apply(process, args);
  };`;

t.test('a process with a call that never returns kills itself, and reports why', async (t) => {
  execFileSync('mkfifo', [join(t.testdir(), 'pipe')]);
  const script = covered('kill') + hasten(LAST_CALLS_MS) + HANGS;
  const { code, signal, stderr } = await runScript(t, script);
  t.strictSame({ code, signal }, KILLED);
  t.equal(stderr, KILLS_ITSELF);
});

t.test(
  'a process that is not killed by its own SIGKILL aborts without a stack trace',
  async (t) => {
    execFileSync('mkfifo', [join(t.testdir(), 'pipe')]);
    const immortal = 'process.kill = () => true;';
    const script = covered('abort') + immortal + hasten(LAST_CALLS_MS) + HANGS;
    const { code, signal, stderr } = await runScript(t, script);
    t.strictSame({ code, signal }, { code: null, signal: 'SIGABRT' });
    t.equal(stderr, KILLS_ITSELF);
  },
);
