import { join } from 'node:path';

import type { Test } from 'tap';

import { TOKEN } from '../client.js';
import { conforms } from '../conformance.js';
import { launch, type Ending, type LaunchOptions, type Process } from '../system/program.js';
import { query, startCluster } from './cluster.js';

export const SECRET = 'pa:ss/w@rd%,';
export const CHANGED = 'another-S3cret';
export const WELL = { code: 0, signal: null };

/** Everything that a program of these tests has written. */
const outputs: Process[] = [];

export function launchProgram(t: Test, options: LaunchOptions): Process {
  const program = launch(t, options);
  outputs.push(program);
  return program;
}

/** Runs the program to its end, and checks what it has written. */
export async function ends(
  t: Test,
  expected: { code: number; stdout?: readonly string[]; stderr?: readonly string[] },
  options: LaunchOptions,
): Promise<void> {
  const { code, stdout = [], stderr = [] } = expected;
  const program = launchProgram(t, options);
  t.strictSame(await program.ended, { code, signal: null });
  t.strictSame(program.stdout.split('\n').toSorted(), ['', ...stdout].toSorted());
  const lines = stderr.map((line) => `plant-store: ${line}`);
  t.strictSame(program.stderr.split('\n'), [...lines, '']);
}

export interface Serving extends Process {
  readonly port: number;
  /** The status of the answer to a plant with this id. */
  post(id: number, token?: string): Promise<number>;
  stop(): Promise<Ending>;
}

/** Starts the program and resolves once it serves. */
export async function start(t: Test, options: LaunchOptions): Promise<Serving> {
  const program = launchProgram(t, options);
  const [, url = ''] = await program.says(
    'stdout',
    /^plant-store listening on (http:.+)\n(?:.+\n)*token: .+\n/,
  );
  return Object.assign(program, {
    port: Number(new URL(url).port),
    async post(id: number, token = TOKEN) {
      const headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' };
      const body = JSON.stringify({ id, name: 'Boston fern' });
      const answer = await fetch(`${url}/plants`, { method: 'POST', headers, body });
      const { status } = answer;
      conforms({ status, headers: Object.fromEntries(answer.headers), body: await answer.text() });
      return status;
    },
    async stop() {
      program.send('SIGTERM');
      return program.ended;
    },
  });
}

/** Starts a server with the role `client`, whose password is {@link SECRET}. */
export async function startDatabase(t: Test) {
  const cluster = await startCluster(t, { authentication: 'host all client all scram-sha-256\n' });
  await cluster.sql(`CREATE ROLE client LOGIN PASSWORD '${SECRET}'`);

  /** The settings for a new database of the role `client`, whose password is in a file. */
  async function configured(t: Test, port = cluster.port): Promise<Record<string, string>> {
    const { pathname } = new URL(await cluster.createDatabase('OWNER client'));
    const cwd = t.testdir({ password: `${SECRET}\n` });
    return {
      PLANT_STORE_TOKEN: TOKEN,
      PLANT_STORE_DATABASE_URL: `postgres://client@127.0.0.1:${port}${pathname}`,
      PLANT_STORE_DATABASE_PASSWORD_FILE: join(cwd, 'password'),
    };
  }

  /** Runs SQL as the superuser in the configured database. */
  function sql(env: Record<string, string>, text: string): Promise<Record<string, unknown>[]> {
    return query(cluster.urlOf(nameIn(env)), text);
  }

  function nameIn({ PLANT_STORE_DATABASE_URL = '' }: Record<string, string>): string {
    return new URL(PLANT_STORE_DATABASE_URL).pathname.slice(1);
  }

  return { cluster, configured, sql, nameIn };
}

/** Checks that none of the programs has written a password. */
export function checkOutputs(t: Test): void {
  t.not(outputs.length, 0);
  for (const { stdout, stderr } of outputs)
    for (const secret of [SECRET, encodeURIComponent(SECRET), CHANGED])
      t.notOk((stdout + stderr).includes(secret));
}
