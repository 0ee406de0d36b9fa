import { strict as assert } from 'node:assert';
import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import type { Case } from '../faults/case.js';
import { run, serve, stop, type Server } from '../faults/program.js';
import { exchange, rawRequest } from './exchange.js';

const MARKER = 'MARKED-TOKEN';
const FIRST = `${MARKER}-first`;
const SECOND = `${MARKER}-second`;
const WRONG = `${MARKER}-wrong`;

/** Heads that bring tokens to where a program might repeat them. */
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

export const secretCases: Case[] = [
  {
    promise: 'tokens of the environment are in no answer, no output and no title',
    check: (folder) => {
      const environment = { PLANT_STORE_TOKEN: `${FIRST} ${SECOND}` };
      return talk(join(folder, 'plants.jsonl'), environment);
    },
  },
  {
    promise: 'nor are tokens of a file, and the log has none of both',
    async check(folder) {
      const file = join(folder, 'tokens');
      writeFileSync(file, `${FIRST}\n`);
      const environment = { PLANT_STORE_TOKEN: undefined, PLANT_STORE_TOKEN_FILE: file };
      const reload = async (program: Server, tokens: string): Promise<void> => {
        writeFileSync(file, tokens);
        program.kill('SIGHUP');
        // By then it has read them.
        for (let n = 0; n < 50; n++)
          await exchange(program.serves, [request(['GET / HTTP/1.1'], '')]);
      };
      const seen = await talk(join(folder, 'plants.jsonl'), environment, async (program) => {
        await reload(program, `${FIRST}\n${SECOND}\n`);
        await reload(program, `${FIRST}\n${SECOND}\u00e9 ${WRONG}\n`);
        return [/accepts 2 tokens/, /the tokens stay as they were/];
      });
      for (const name of readdirSync(folder))
        if (name !== 'tokens') hides(readFileSync(join(folder, name), 'latin1'), name);
      return seen;
    },
  },
  {
    promise: 'tokens that cannot be used are not repeated, nor by the commands',
    async check(folder) {
      const bad = join(folder, 'tokens');
      mkdirSync(join(folder, 'log'));
      writeFileSync(bad, `${FIRST} ${SECOND}\n${'x'.repeat(600)}${WRONG}\n`);
      const log = join(folder, 'log', 'plants.jsonl');
      writeFileSync(log, 'damaged\n');
      const runs: [string[], NodeJS.ProcessEnv][] = [
        [[], { PLANT_STORE_TOKEN: `${FIRST}\u00e9` }],
        [[], { PLANT_STORE_TOKEN: `${FIRST} ${MARKER}${'x'.repeat(600)}` }],
        [[], { PLANT_STORE_TOKEN: undefined, PLANT_STORE_TOKEN_FILE: bad }],
        [[], { PLANT_STORE_TOKEN: FIRST, PLANT_STORE_PORT: '-1' }],
        [[], { PLANT_STORE_TOKEN: FIRST }],
        ...['--help', '--version', 'verify', 'nonsense'].map(
          (command): [string[], NodeJS.ProcessEnv] => [[command], { PLANT_STORE_TOKEN: FIRST }],
        ),
      ];
      for (const [command, environment] of runs) {
        const { stdout, stderr } = await run({ log, command, environment }).ended;
        assert.notEqual(stdout + stderr, '', 'it says something');
        hides(stdout, command.join());
        hides(stderr, command.join());
      }
      return `${runs.length} runs`;
    },
  },
  {
    promise: 'a fault in the store is logged with its cause, and without a token',
    needs: ['strace'],
    check(folder) {
      const log = join(folder, 'plants.jsonl');
      const under = ['strace', '-D', '-f', '-qq', '-o', '/dev/null', '-P', log];
      const faults = ['-e', 'trace=write', '-e', 'inject=write:error=EIO'];
      return poisoned(log, [...under, ...faults]);
    },
  },
];

function hides(text: string, where: string): void {
  assert.ok(!text.includes(MARKER), `no token in ${where}`);
}

const request = (head: readonly string[], body: string): Buffer =>
  rawRequest([...head, 'Host: localhost', `Content-Length: ${body.length}`], body);

/** Sends tokens, right ones and wrong ones, to a program and looks at all that comes of it. */
async function talk(
  log: string,
  environment: NodeJS.ProcessEnv,
  reload?: (program: Server) => Promise<readonly RegExp[]>,
): Promise<string> {
  const server = await serve({ log, environment });
  let answered = 0;
  for (const head of HEADS)
    for (const body of BODIES) {
      const { answers } = await exchange(server.serves, [request(head, body)]);
      for (const answer of answers)
        hides(JSON.stringify([...answer.headers]) + answer.body, 'an answer');
      answered += answers.length;
    }
  hides(
    execFileSync('ps', ['-o', 'args=', '-p', String(server.pid)], { encoding: 'utf8' }),
    'its title',
  );
  const reports = (await reload?.(server)) ?? [];
  const { stdout, stderr } = await stop(server);
  hides(stdout, 'stdout');
  hides(stderr, 'stderr');
  for (const report of reports) assert.match(stderr, report);
  return `${answered} answers`;
}

async function poisoned(log: string, under: readonly string[]): Promise<string> {
  const environment = { PLANT_STORE_TOKEN: FIRST };
  const server = await serve({ log, under, environment });
  const head = HEADS[3] ?? [];
  const { answers } = await exchange(server.serves, [request(head, `{"id":1,"name":"n"}`)]);
  assert.deepEqual(
    answers.map(({ status }) => status),
    [503],
  );
  const { how, stdout, stderr } = await server.ended;
  assert.equal(how, 1);
  for (const text of [stdout, stderr, ...answers.map(({ body }) => body)])
    hides(text, 'what it says');
  assert.match(stderr, /EIO/);
  return 'EIO';
}
