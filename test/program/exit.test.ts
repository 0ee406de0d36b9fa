import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

import t from 'tap';

import { EXIT, failWith } from '../../dist/program/exit.js';
import { KILLED, run, type Ending } from '../system/program.js';

const ABORTED: Ending = { code: null, signal: 'SIGABRT' };

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

/** Makes a function of the process write the coverage before it ends the process. */
const covered = (name: string): string => `const { ${name} } = process;
  process.${name} = (...args) => {
    takeCoverage();
    ${name}.apply(process, args);
  };`;

const IMMORTAL = 'process.kill = () => true;';

for (const [what, code, ending] of [
  ['kills itself', covered('kill'), KILLED],
  ['that its own SIGKILL does not end aborts', IMMORTAL + covered('abort'), ABORTED],
] as const)
  t.test(`a process with a call that never returns ${what}`, async (t) => {
    const cwd = t.testdir();
    execFileSync('mkfifo', [join(cwd, 'pipe')]);
    const url = JSON.stringify(pathToFileURL('dist/program/exit.js'));
    // Opening a FIFO blocks until it has a writer.
    const source = `import fs from 'node:fs';
      import { takeCoverage } from 'node:v8';
      import { killProcess } from ${url};
      ${code}
      fs.open('pipe', 'r', () => undefined);
      killProcess();`;
    const command = [process.execPath, '--input-type=module', '--eval', source];
    const { code: exitCode, signal } = await run(t, { command, cwd });
    t.strictSame({ code: exitCode, signal }, ending);
  });
