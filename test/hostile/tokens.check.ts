/* Tokens, valid and invalid, must not appear in anything that the program writes. */
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import t, { type Test } from 'tap';

import { exactly } from '../exactly.js';
import { injecting } from '../faults/strace.js';
import { missing, settingsFor, stopCleanly } from '../faults/support.js';
import { run, start, type Program } from '../system/program.js';
import { exchange, rawRequest } from './exchange.js';

const MARKER = 'MARKED-TOKEN';
const FIRST = `${MARKER}-first`;
const SECOND = `${MARKER}-second`;
const WRONG = `${MARKER}-wrong`;

/** Header sections with tokens in places that a program might repeat. */
const HEADS: readonly (readonly string[])[] = [
  ['POST /plants HTTP/1.1', `Authorization: Bearer ${WRONG}`],
  ['POST /plants HTTP/1.1', `Authorization: Basic ${WRONG}`],
  ['POST /plants HTTP/1.1', `Authorization: Bearer ${FIRST}`, `Authorization: Bearer ${WRONG}`],
  ['POST /plants HTTP/1.1', `Authorization: Bearer ${FIRST}`, 'Content-Type: application/json'],
  ['GET /plants HTTP/1.1', `Authorization: Bearer ${FIRST}`],
  ['POST /plants HTTP/1.1', `Authorization: Bearer ${FIRST}`, `Expect: ${WRONG}`],
  [`POST /plants?access_token=${WRONG} HTTP/1.1`],
  [`POST /${WRONG} HTTP/1.1`, `Authorization: Bearer ${FIRST}`],
  [`CONNECT ${WRONG}:1 HTTP/1.1`],
  [`POST /plants HTTP/1.1`, `Authorization : Bearer ${WRONG}`],
  [`${WRONG} /plants HTTP/1.1`],
];
const BODIES = [
  '',
  `{"id":1,"name":"n"`,
  `{"id":"${WRONG}","name":"n"}`,
  `{"id":1,"name":"n","${WRONG}":`,
  WRONG,
];

t.test('tokens of the environment are in no answer, no output and no process title', async (t) => {
  const log = join(t.testdir(), 'plants.jsonl');
  const env = { ...settingsFor(log), PLANT_STORE_TOKEN: `${FIRST} ${SECOND}` };
  await hidesTokens(t, env);
});

t.test('tokens of a file are in no answer, no output, no process title and no log', async (t) => {
  const folder = t.testdir({ tokens: `${FIRST}\n` });
  const file = join(folder, 'tokens');
  const env = { PLANT_STORE_FILE: join(folder, 'plants.jsonl'), PLANT_STORE_TOKEN_FILE: file };
  await hidesTokens(t, env, async (program) => {
    writeFileSync(file, `${FIRST}\n${SECOND}\n`);
    program.send('SIGHUP');
    await program.says('stderr', /accepts 2 tokens\n/);
    writeFileSync(file, `${FIRST}\n${SECOND}\u00e9 ${WRONG}\n`);
    program.send('SIGHUP');
    await program.says('stderr', /the tokens stay as they were\n/);
  });
  for (const name of readdirSync(folder))
    if (name !== 'tokens') hides(t, readFileSync(join(folder, name), 'latin1'), name);
});

t.test('no command and no failed start prints a token', async (t) => {
  const folder = t.testdir({
    tokens: `${FIRST} ${SECOND}\n${'x'.repeat(600)}${WRONG}\n`,
    'plants.jsonl': 'damaged\n',
  });
  const first = { PLANT_STORE_TOKEN: FIRST };
  const runs: [args: string[], env: Record<string, string>][] = [
    [[], { PLANT_STORE_TOKEN: `${FIRST}\u00e9` }],
    [[], { PLANT_STORE_TOKEN: `${FIRST} ${MARKER}${'x'.repeat(600)}` }],
    [[], { PLANT_STORE_TOKEN_FILE: join(folder, 'tokens') }],
    [[], { ...first, PLANT_STORE_PORT: '-1' }],
    [[], first],
    [['--help'], first],
    [['--version'], first],
    [['verify'], first],
    [['nonsense'], first],
  ];
  for (const [args, settings] of runs) {
    const env = { PLANT_STORE_FILE: join(folder, 'plants.jsonl'), ...settings };
    const { stdout, stderr } = await run(t, { args, env });
    t.not(stdout + stderr, '', 'there is output');
    hides(t, stdout, `stdout of ${args.join()}`);
    hides(t, stderr, `stderr of ${args.join()}`);
  }
});

t.test(
  'a fault of the store is reported with its cause, and without a token',
  { skip: missing('strace') },
  async (t) => {
    const log = join(t.testdir(), 'plants.jsonl');
    const env = { ...settingsFor(log), PLANT_STORE_TOKEN: FIRST };
    const under = injecting({ paths: [log], names: 'write' }, 'write:error=EIO');
    const program = await start(t, { env, under });
    const body = '{"id":1,"name":"n"}';
    const { answers } = await exchange(program.port, [request(HEADS[3] ?? [], body)]);
    t.match(answers, exactly({ status: 503 }));
    t.match(await program.ended, { code: 1 });
    hides(t, program.stdout, 'stdout');
    hides(t, program.stderr, 'stderr');
    for (const answer of answers) hides(t, answer.body, 'the answer');
    t.match(program.stderr, /EIO/);
  },
);

function hides(t: Test, text: string, where: string): void {
  t.notOk(text.includes(MARKER), `no token in ${where}`);
}

const request = (head: readonly string[], body: string): Buffer =>
  rawRequest([...head, 'Host: localhost', `Content-Length: ${body.length}`], body);

/** Sends valid and invalid tokens to a program, and checks everything that it writes. */
async function hidesTokens(
  t: Test,
  env: Readonly<Record<string, string>>,
  reload?: (program: Program) => Promise<void>,
): Promise<void> {
  const program = await start(t, { env });
  for (const head of HEADS)
    for (const body of BODIES) {
      const { answers } = await exchange(program.port, [request(head, body)]);
      for (const { headers, body } of answers)
        hides(t, JSON.stringify([...headers]) + body, 'an answer');
    }
  const title = execFileSync('ps', ['-o', 'args=', '-p', String(program.pid)]);
  hides(t, String(title), 'the process title');
  await reload?.(program);
  await stopCleanly(t, program);
  hides(t, program.stdout, 'stdout');
  hides(t, program.stderr, 'stderr');
}
