/* Tokens, valid and invalid, must not appear in anything that the program writes. */
import { execFileSync } from 'node:child_process';
import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import t, { type Test } from 'tap';

import { message, type Message } from '../client.js';
import { run, start } from '../system/program.js';
import { exchange } from './exchange.js';

const MARKER = 'MARKED-TOKEN';
const FIRST = `${MARKER}-first`;
const SECOND = `${MARKER}-second`;
const WRONG = `${MARKER}-wrong`;

function hides(t: Test, text: string, where: string): void {
  t.notOk(text.includes(MARKER), `no token in ${where}`);
}

const bearing = (...tokens: string[]): Message['headers'] & object => ({
  Authorization: tokens.map((token) => `Bearer ${token}`),
});

/** Requests with tokens in places that a program might repeat. */
const REQUESTS: readonly Message[] = [
  { headers: bearing(WRONG) },
  { headers: { Authorization: `Basic ${WRONG}` } },
  { headers: bearing(FIRST, WRONG) },
  { headers: { ...bearing(FIRST), 'Content-Type': WRONG } },
  { headers: { ...bearing(FIRST), Expect: WRONG } },
  { headers: { ...bearing(FIRST), [`${WRONG} `]: WRONG } },
  { headers: bearing(FIRST), method: 'GET' },
  { headers: bearing(FIRST), target: `/${WRONG}` },
  { method: WRONG },
  ...['', WRONG, `{"id":"${WRONG}","name":7}`, `{"id":1,"name":"n","${WRONG}":`].map((body) => ({
    headers: bearing(FIRST),
    body,
  })),
];

t.test('tokens of a file are in no answer, no output, no process title and no log', async (t) => {
  const cwd = t.testdir({ data: { token: `${FIRST}\n` } });
  const [tokens, log] = [join(cwd, 'data/token'), join(cwd, 'data/plants.jsonl')];
  const program = await start(t, { cwd });
  for (const request of REQUESTS)
    for (const { text } of await exchange(program.port, [message(request)]))
      hides(t, text, 'an answer');
  hides(t, String(execFileSync('ps', ['-o', 'args=', '-p', String(program.pid)])), 'the title');
  writeFileSync(tokens, `${FIRST}\n${SECOND}\n`);
  program.send('SIGHUP');
  await program.says('stderr', /accepts 2 tokens\n/);
  writeFileSync(tokens, `${FIRST}\n${SECOND}\u00e9 ${WRONG}\n`);
  program.send('SIGHUP');
  await program.says('stderr', /the tokens stay as they were\n/);
  // The program ends with a fault: somebody else writes to the log.
  appendFileSync(log, ' ');
  const [answer] = await exchange(program.port, [message({ headers: bearing(FIRST) })]);
  t.match(answer, { status: 503 });
  await program.ended;
  t.match(program.stderr, /plants\.jsonl/);
  hides(t, program.stdout, 'stdout');
  hides(t, program.stderr, 'stderr');
  hides(t, readFileSync(log, 'latin1'), 'the log');
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
    [['verify'], first],
    [['nonsense'], first],
  ];
  for (const [args, settings] of runs) {
    const env = { PLANT_STORE_FILE: join(folder, 'plants.jsonl'), ...settings };
    const { stdout, stderr } = await run(t, { args, env });
    t.not(stdout + stderr, '', 'there is output');
    hides(t, stdout + stderr, `the output of ${args.join()}`);
  }
});
