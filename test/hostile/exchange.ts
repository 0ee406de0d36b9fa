import { strict as assert } from 'node:assert';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';

/** An answer as it was received over a socket. */
export interface Answer {
  readonly status: number;
  /** By names in lower case. */
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
}

/** What was received on a connection until the program closed it. */
export interface Exchange {
  readonly answers: readonly Answer[];
  /** The error that ended it, if any. */
  readonly fault: Error | undefined;
}

/** The longest that the program may keep a connection open, its own timeouts included, in ms. */
const PATIENCE_MS = 15_000;

/** Sends pieces over a connection, ends it, and reads everything until the program closes it. */
export async function exchange(
  port: number,
  pieces: readonly Buffer[],
  isHead: (nth: number) => boolean = () => false,
): Promise<Exchange> {
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true, noDelay: true });
  const chunks: Buffer[] = [];
  let fault: Error | undefined;
  const closed = new Promise<void>((resolve) => {
    socket.on('close', () => resolve()).on('error', (error) => (fault ??= error));
  });
  socket.on('data', (chunk) => chunks.push(chunk)).on('end', () => socket.destroySoon());
  const timer = setTimeout(() => socket.destroy(new Error('the connection hangs')), PATIENCE_MS);
  for (const [n, piece] of pieces.entries()) {
    if (n > 0) await nextTurn();
    socket.write(piece);
  }
  socket.end();
  await closed;
  clearTimeout(timer);
  const { answers, rest } = parseAnswers(Buffer.concat(chunks), isHead);
  assert.equal(rest.length, 0, 'every answer is complete');
  return { answers, fault };
}

/** Parses answers, without interim ones. */
export function parseAnswers(
  bytes: Buffer,
  isHead: (nth: number) => boolean = () => false,
): { answers: Answer[]; rest: Buffer } {
  const answers: Answer[] = [];
  let rest = bytes;
  for (;;) {
    const end = rest.indexOf('\r\n\r\n');
    if (end === -1) return { answers, rest };
    const [statusLine = '', ...lines] = rest.toString('latin1', 0, end).split('\r\n');
    const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(statusLine)?.[1]);
    assert.ok(status >= 100, `a status line: ${statusLine}`);
    const headers = new Map(lines.map(field));
    const hasBody = status >= 200 && !isHead(answers.length);
    const length = hasBody ? Number(headers.get('content-length')) : 0;
    assert.ok(Number.isInteger(length), `a Content-Length: ${statusLine}`);
    if (rest.length < end + 4 + length) return { answers, rest };
    const body = rest.toString('utf8', end + 4, end + 4 + length);
    if (status >= 200) answers.push({ status, headers, body });
    rest = rest.subarray(end + 4 + length);
  }
}

function field(line: string): [name: string, value: string] {
  const [, name = '', value = ''] = /^([\w-]+): (.*)$/.exec(line) ?? [];
  assert.notEqual(name, '', `a header line: ${line}`);
  return [name.toLowerCase(), value];
}

/** Opens a connection. */
export async function opened(port: number): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true });
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  return socket;
}

/** The bytes of a request with these header lines and this body. */
export function rawRequest(lines: readonly string[], body: string | Buffer = ''): Buffer {
  return Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'), Buffer.from(body)]);
}
