import { once } from 'node:events';
import { connect as connectTo, type Socket } from 'node:net';
import { connect as connectSecurely } from 'node:tls';

import type { Test } from 'tap';

import { expectConformance } from './conformance.js';
import { FERN_JSON } from './plants.js';

/** The token that clients send. The handler in the documents accepts the same one. */
export const TOKEN = 'a-secret-token';

export interface Message {
  readonly method?: string;
  readonly target?: string;
  /**
   * These headers replace the default ones. `undefined` removes a header, and an array sends a
   * header line for each value.
   */
  readonly headers?: Readonly<Record<string, string | readonly string[] | undefined>>;
  readonly body?: string | Buffer;
}

/** The bytes of an HTTP/1.1 request. The default request stores FERN. */
export function message(parts: Message = {}): Buffer {
  const { method = 'POST', target = '/plants', headers, body = FERN_JSON } = parts;
  const fields = {
    Host: 'localhost',
    Authorization: `Bearer ${TOKEN}`,
    'Content-Type': 'application/json',
    'Content-Length': String(Buffer.byteLength(body)),
    ...headers,
  };
  const lines = Object.entries(fields).flatMap(([name, values = []]) =>
    [values].flat().map((value) => `${name}: ${value}`),
  );
  const head = [`${method} ${target} HTTP/1.1`, ...lines, '', ''].join('\r\n');
  return Buffer.concat([Buffer.from(head), Buffer.from(body)]);
}

/** The headers of a request whose body is sent in chunks. */
export const CHUNKED = { 'Content-Length': undefined, 'Transfer-Encoding': 'chunked' };

/** The bytes of a request whose body is sent in these chunks. */
export function chunkedMessage(...chunks: readonly (string | Buffer)[]): Buffer {
  return message({ headers: CHUNKED, body: Buffer.concat([...chunks, ''].map(chunk)) });
}

export function chunk(data: string | Buffer): Buffer {
  const size = Buffer.byteLength(data).toString(16);
  return Buffer.concat([Buffer.from(`${size}\r\n`), Buffer.from(data), Buffer.from('\r\n')]);
}

export interface Answer {
  readonly status: number;
  /** The values by header names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** The whole answer as it was received: head and body. */
  readonly text: string;
}

/** The status of an interim response. The final answer follows it. */
const CONTINUE = 100;

/**
 * A check that accepts any answer, for answers that an application gives instead of the handler.
 */
export const anyAnswer: typeof expectConformance = () => undefined;

/** A connection to a server, with as much of an HTTP client as a test needs. */
export interface Client {
  readonly socket: Socket;
  send(...bytes: readonly (string | Buffer)[]): void;
  /**
   * Resolves to the next answer. `method` is the method of its request: an answer to a HEAD has no
   * body. Rejects if the connection closes before the answer is complete, or if the OpenAPI
   * document does not describe the answer.
   */
  answer(method?: string): Promise<Answer>;
  /** Resolves once the connection is closed, for whatever reason. */
  readonly closed: Promise<void>;
}

export async function connect(t: Test, port: number, check = expectConformance): Promise<Client> {
  const socket = connectTo(port, '127.0.0.1');
  t.teardown(() => socket.destroy());
  let received = Buffer.alloc(0);
  let onEvent = (): void => undefined;
  socket.on('data', (data) => {
    received = Buffer.concat([received, data]);
    onEvent();
  });
  // A connection that is reset is closed, too.
  socket.on('error', () => undefined);
  const closed = new Promise<void>((resolve) => socket.on('close', () => resolve()));
  socket.on('close', () => onEvent());
  await once(socket, 'connect');

  return {
    socket,
    closed,
    send(...bytes) {
      for (const some of bytes) socket.write(some);
    },
    async answer(method) {
      for (;;) {
        const answer = parseAnswer(received, method);
        if (answer) {
          if (answer.status !== CONTINUE) check(answer, method);
          received = received.subarray(Buffer.byteLength(answer.text));
          return answer;
        }
        if (socket.closed) throw new Error(`closed after ${received.length} bytes of an answer`);
        await new Promise<void>((resolve) => (onEvent = resolve));
      }
    },
  };
}

/** Opens a connection, over TLS if `secure` is true. An error only closes the connection. */
export async function openSocket(port: number, secure = false): Promise<Socket> {
  const socket = secure
    ? connectSecurely({ port, host: '127.0.0.1', rejectUnauthorized: false })
    : connectTo(port, '127.0.0.1');
  socket.on('error', () => undefined);
  await untilEventOrClose(socket, secure ? 'secureConnect' : 'connect');
  return socket.setNoDelay();
}

/** Resolves once a connection emits an event or is closed. */
export function untilEventOrClose(socket: Socket, event: string): Promise<void> {
  return new Promise((resolve) => {
    if (socket.destroyed) resolve();
    for (const each of [event, 'close']) socket.once(each, () => resolve());
  });
}

/**
 * Parses the complete answers at the beginning of some bytes, without interim ones, and returns the
 * bytes after them as `rest`. None of the requests may have been a HEAD.
 */
export function parseAnswers(bytes: Buffer): { answers: Answer[]; rest: Buffer } {
  const answers: Answer[] = [];
  let rest = bytes;
  for (let answer; (answer = parseAnswer(rest));) {
    if (answer.status !== CONTINUE) answers.push(answer);
    rest = rest.subarray(Buffer.byteLength(answer.text));
  }
  return { answers, rest };
}

function parseAnswer(bytes: Buffer, method?: string): Answer | undefined {
  const headEnd = bytes.indexOf('\r\n\r\n') + 4;
  if (headEnd < 4) return undefined;
  const [statusLine = '', ...lines] = bytes.toString('utf8', 0, headEnd).trimEnd().split('\r\n');
  const headers = Object.fromEntries(
    lines.map((line) => {
      const colon = line.indexOf(':');
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
    }),
  );
  const end = headEnd + (method === 'HEAD' ? 0 : Number(headers['content-length'] ?? 0));
  if (bytes.length < end) return undefined;
  return {
    status: Number(statusLine.split(' ')[1]),
    headers,
    body: bytes.toString('utf8', headEnd, end),
    text: bytes.toString('utf8', 0, end),
  };
}

/** Resolves once no server listens on a port any more. */
export async function untilRefused(t: Test, port: number): Promise<void> {
  for (;;)
    try {
      const { socket } = await connect(t, port);
      socket.destroy();
    } catch {
      return;
    }
}

/** Sends a request on a new connection, and resolves to the answer. */
export async function exchange(
  t: Test,
  port: number,
  request: Buffer,
  check = expectConformance,
): Promise<Answer> {
  const client = await connect(t, port, check);
  client.send(request);
  const answer = await client.answer(request.toString('latin1', 0, 4) === 'HEAD' ? 'HEAD' : 'POST');
  client.socket.destroy();
  return answer;
}

export interface Expected {
  readonly status: number;
  /** The number in the body. Default: the status. */
  readonly error?: number;
  readonly headers?: Readonly<Record<string, string>>;
}

/**
 * Checks that an answer is the expected failure, and that its body is an `Error` of the OpenAPI
 * document.
 */
export function expectFailure(t: Test, answer: Answer, expected: Expected, about: string): void {
  const { status, error = status, headers = {} } = expected;
  const body = JSON.parse(answer.body) as Record<string, unknown>;
  t.match({ ...answer, body }, { status, headers, body: { error } }, about);
  t.strictSame(Object.keys(body), ['error', 'message'], `${about}: members of an Error`);
  t.match(
    body.message,
    /^[\w +-]+(?:[:;.,<>-][\w :;.,<>/-]+)*$/,
    `${about}: message is a sentence`,
  );
}

/** Sends a plant with a token, and resolves to the status of the answer. */
export async function statusWith(
  t: Test,
  port: number,
  token: string,
  body = FERN_JSON,
): Promise<number> {
  const headers = { Authorization: `Bearer ${token}` };
  return (await exchange(t, port, message({ headers, body }))).status;
}
