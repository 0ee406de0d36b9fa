import { generateKeyPairSync, sign } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect as connectTo, type AddressInfo, type Server, type Socket } from 'node:net';
import { join } from 'node:path';

import type { Test } from 'tap';

import {
  createPlantHandler,
  openPlantLog,
  type PlantHandler,
  type PlantHandlerOptions,
  type PlantLog,
  type PlantStore,
} from '../dist/index.js';
import { conforms } from './conformance.js';

export const TOKEN = 'a-token';
export const FERN = '{"id":7,"name":"Boston fern","tag":"indoor"}';

/** Opens a log in a folder of the test's own. */
export async function openLog(t: Test): Promise<PlantLog> {
  const log = await openPlantLog(join(t.testdir(), 'plants.jsonl'));
  t.teardown(() => log.close());
  return log;
}

/** Until the test ends, timers of `ms` milliseconds fire after a hundredth of that time. */
export function hastenTimers(t: Test, ms: number): void {
  const { setTimeout } = globalThis;
  const value = (callback: () => void, delay?: number): NodeJS.Timeout =>
    setTimeout(callback, delay === ms ? ms / 100 : delay);
  t.intercept(globalThis, 'setTimeout', { value });
}

/** Listens on a free port until the test is over. */
export async function listen(t: Test, server: Server): Promise<number> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => sockets.add(socket));
  t.teardown(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return (server.address() as AddressInfo).port;
}

export interface Service {
  readonly port: number;
  readonly server: Server;
  readonly handler: PlantHandler;
  readonly log: PlantLog;
  /** The causes of the faults that the handler reported. */
  readonly reported: unknown[];
}

/** Serves the handler and nothing else, before a log or the store that the options name. */
export async function serve(t: Test, options: Partial<PlantHandlerOptions> = {}): Promise<Service> {
  const log = await openLog(t);
  const reported: unknown[] = [];
  const handler = createPlantHandler({
    store: log,
    tokens: [TOKEN],
    report: (_, cause) => reported.push(cause),
    ...options,
  });
  const server = createServer(handler);
  return { port: await listen(t, server), server, handler, log, reported };
}

/** A store that does just this with a plant. */
export function storeOf(add: PlantStore['add']): PlantStore {
  return { add, close: () => Promise.resolve() };
}

/** A store whose plants are pending until `letGo` is called. */
export interface GatedStore extends PlantStore {
  /** Resolves once `count` plants have been added. */
  arrived(count: number): Promise<void>;
  /** Stores all pending plants, and from now on every plant at once. */
  letGo(): void;
}

export function gatedStore(): GatedStore {
  let letGo = (): void => undefined;
  const gate = new Promise<void>((resolve) => (letGo = resolve));
  let plants = 0;
  let onArrival = (): void => undefined;
  return {
    async add() {
      plants++;
      onArrival();
      await gate;
      return 'created';
    },
    async close() {
      letGo();
    },
    arrived: (count) =>
      new Promise((resolve) => {
        onArrival = () => {
          if (plants >= count) resolve();
        };
        onArrival();
      }),
    letGo: () => letGo(),
  };
}

export interface Message {
  readonly method?: string;
  readonly target?: string;
  /** Replace the default ones. An array sends a header line for each value. */
  readonly headers?: Readonly<Record<string, string | readonly string[] | undefined>>;
  readonly body?: string | Buffer;
}

/** The bytes of an HTTP/1.1 request; by default one that stores a plant. */
export function message(parts: Message = {}): Buffer {
  const { method = 'POST', target = '/plants', headers, body = FERN } = parts;
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

/** A request whose body comes in chunks. */
export function chunkedMessage(...chunks: readonly (string | Buffer)[]): Buffer {
  const headers = { 'Content-Length': undefined, 'Transfer-Encoding': 'chunked' };
  return message({ headers, body: Buffer.concat([...chunks, ''].map(chunk)) });
}

export function chunk(data: string | Buffer): Buffer {
  const size = Buffer.byteLength(data).toString(16);
  return Buffer.concat([Buffer.from(`${size}\r\n`), Buffer.from(data), Buffer.from('\r\n')]);
}

export interface Answer {
  readonly status: number;
  /** By names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** All of it, as it came. */
  readonly text: string;
}

/** Says that the client may send the body; the answer is yet to come. */
const CONTINUE = 100;

/** Takes any answer: for those that a host gives, not the handler. */
export const byHost: typeof conforms = () => undefined;

/** A connection of a client with as much of HTTP as a test needs. */
export interface Client {
  readonly socket: Socket;
  send(...bytes: readonly (string | Buffer)[]): void;
  /**
   * The next answer; without its body if the request was a HEAD. Rejects if it is not one that the
   * OpenAPI document describes.
   */
  answer(method?: string): Promise<Answer>;
  /** Resolves once the connection is closed, for whatever reason. */
  readonly closed: Promise<void>;
}

export async function connect(t: Test, port: number, check = conforms): Promise<Client> {
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

/** Sends one request on a connection of its own. */
export async function exchange(
  t: Test,
  port: number,
  request: Buffer,
  check = conforms,
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

/** Checks that an answer is the expected failure, and that its body is an Error. */
export function isFailure(t: Test, answer: Answer, expected: Expected, about: string): void {
  const { status, error = status, headers = {} } = expected;
  const body = JSON.parse(answer.body) as Record<string, unknown>;
  t.match({ ...answer, body }, { status, headers, body: { error } }, about);
  t.equal(answer.headers['content-type'], 'application/json', `${about}: media type`);
  t.strictSame(Object.keys(body), ['error', 'message'], `${about}: members of an Error`);
  t.equal(body.error, Number(body.error) | 0, `${about}: error is an int32`);
  t.match(
    body.message,
    /^[\w +-]+(?:[:;.,<>-][\w :;.,<>/-]+)*$/,
    `${about}: message is a sentence`,
  );
}

/** A key and a certificate for `localhost` that is its own authority (RFC 5280, RFC 8410). */
export function selfSigned(): { readonly key: string; readonly cert: string } {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  const ed25519 = sequence(der(0x06, Buffer.from([0x2b, 0x65, 0x70])));
  const commonName = sequence(
    der(0x06, Buffer.from([0x55, 0x04, 0x03])),
    der(0x0c, Buffer.from('localhost')),
  );
  const name = sequence(der(0x31, commonName));
  const validity = sequence(
    der(0x18, Buffer.from('20000101000000Z')),
    der(0x18, Buffer.from('21000101000000Z')),
  );
  const version3 = der(0xa0, der(0x02, Buffer.from([2])));
  const serial = der(0x02, Buffer.from([1]));
  const publicKeyInfo = publicKey.export({ type: 'spki', format: 'der' });
  const content = sequence(version3, serial, ed25519, name, validity, name, publicKeyInfo);
  const signature = der(0x03, Buffer.from([0]), sign(null, content, privateKey));
  const base64 = sequence(content, ed25519, signature).toString('base64');
  return {
    key: String(privateKey.export({ type: 'pkcs8', format: 'pem' })),
    cert: `-----BEGIN CERTIFICATE-----\n${base64}\n-----END CERTIFICATE-----\n`,
  };
}

const sequence = (...parts: readonly Buffer[]): Buffer => der(0x30, ...parts);

/** A value in DER of fewer than 65,536 bytes. */
function der(tag: number, ...parts: readonly Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  const size = length < 128 ? [length] : [0x82, length >> 8, length & 255];
  return Buffer.concat([Buffer.from([tag, ...size]), content]);
}
