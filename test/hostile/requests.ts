import fc from 'fast-check';

import { TOKEN } from '../faults/program.js';
import { document } from './documents.js';
import { judgeBody, type Plant } from './oracle.js';

/* Requests, by a grammar of HTTP/1.1 in which every choice knows what becomes of it. */

/** How a request is answered: by its plant, or by status and `error`. */
export type Expected = Plant | readonly [status: number, error: number];

export interface Request {
  readonly bytes: Buffer;
  readonly isHead: boolean;
  /** Whether it is no HTTP: behind another request, such need not be answered. */
  readonly isFlawed: boolean;
  /** Whether the connection may end with its answer: what follows would not be answered. */
  readonly mayClose: boolean;
  readonly expected: Expected;
}

/** Lines of a head, and the status that they lead to, if they do. */
type Choice = readonly [lines: readonly string[], status?: number];

/** The first one often, the others now and then. */
const mostly = <T>(weight: number, first: T, ...others: readonly T[]): fc.Arbitrary<T> =>
  fc.oneof(
    { arbitrary: fc.constant(first), weight },
    { arbitrary: fc.constantFrom(first, ...others), weight: 1 },
  );

const method = mostly(25, 'POST', 'GET', 'PUT', 'HEAD', 'DELETE', 'PATCH', 'OPTIONS', 'PROPFIND');
const target = mostly<readonly [target: string, isOurs: boolean]>(
  25,
  ['/plants', true],
  ['/plants?', true],
  ['/plants?a=/b', true],
  ['http://elsewhere/plants', true],
  ['HTTPS://elsewhere:1/plants?a', true],
  ['/', false],
  ['/plants/', false],
  ['//plants', false],
  ['/Plants', false],
  ['/%70lants', false],
  ['/plants;a', false],
  ['/a/../plants', false],
  ['*', false],
);

const credentials = mostly<Choice>(
  25,
  [[`Authorization: Bearer ${TOKEN}`]],
  [[`Authorization: bEARER   ${TOKEN}`]],
  [[`Authorization:\t Bearer ${TOKEN} `]],
  [[], 401],
  [['Authorization:'], 401],
  [[`Authorization: ${TOKEN}`], 401],
  [[`Authorization: Basic ${TOKEN}`], 401],
  [[`Authorization: Bearer ${TOKEN}n`], 401],
  [[`Authorization: Bearer ${TOKEN.slice(1)}`], 401],
  [[`Authorization: Bearer ${TOKEN} ${TOKEN}`], 401],
  [[`Authorization: Bearer ${TOKEN}`, `Authorization: Bearer ${TOKEN}`], 400],
  [[`Authorization: Bearer ${TOKEN}`, 'AUTHORIZATION: Basic x'], 400],
);

const mediaType = mostly<Choice>(
  25,
  [['Content-Type: application/json']],
  [['Content-Type: Application/JSON; charset="UTF-8"']],
  [['Content-Type: application/json;charset=utf8;a=b']],
  [[], 415],
  [['Content-Type:'], 415],
  [['Content-Type: application/jsonx'], 415],
  [['Content-Type: text/plain'], 415],
  [['Content-Type: application/json; charset=latin1'], 415],
);

const contentCoding = mostly<Choice>(
  40,
  [[]],
  [['Content-Encoding: Identity']],
  [['Content-Encoding: gzip'], 415],
  [['Content-Encoding: identity, br'], 415],
);

const expectation = mostly<Choice>(40, [[]], [['Expect: 100-continue']], [['Expect: 200-ok'], 417]);

/** What makes it no HTTP at all. */
const flaw = mostly<readonly string[]>(
  60,
  [],
  ['A : b'],
  ['A: \0'],
  ['Content-Length: 1x'],
  ['Content-Length: 1', 'Content-Length: 2'],
  ['Content-Length: 3', 'Transfer-Encoding: chunked'],
  ['Host: a', 'Host: b'],
  ['(A): b'],
  ['no colon'],
);

const other = fc.oneof(
  fc.constantFrom(
    'Connection: keep-alive',
    'Accept: */*',
    'Cookie: a=b',
    'Upgrade: h2c',
    'Range: x',
  ),
  fc
    .tuple(
      fc.stringMatching(/^X-[\w!#$%&'*+.^`|~-]{0,20}$/),
      fc.stringMatching(/^[\t -~\x80-\xff]{0,40}$/),
    )
    .map(([name, value]) => `${name}:${value}`),
);

type Framing = (body: Buffer, at: number) => readonly [lines: readonly string[], body: Buffer];

const chunk = (bytes: Buffer, extension: string): string =>
  bytes.length === 0
    ? ''
    : `${bytes.length.toString(16)}${extension}\r\n${bytes.toString('latin1')}\r\n`;
const chunked =
  (coding: string, extension: string, trailer: string): Framing =>
  (body, at) => [
    [`Transfer-Encoding: ${coding}`],
    Buffer.from(
      `${chunk(body.subarray(0, at), extension)}${chunk(body.subarray(at), '')}0\r\n${trailer}\r\n`,
      'latin1',
    ),
  ];
const framing = mostly<readonly [Framing, status?: number]>(
  15,
  [(body) => [[`Content-Length: ${body.length}`], body]],
  [chunked('chunked', '', '')],
  [chunked('Chunked', ';a="b"', 'X-A: b\r\n')],
  [chunked('gzip, chunked', '', ''), 501],
);

/** Whether it is told to be the last one of its connection. */
const version = mostly(30, '1.1', '1.0', '1.1, the last one');

export const request: fc.Arbitrary<Request> = fc
  .record({
    method,
    target,
    version,
    credentials,
    mediaType,
    contentCoding,
    expectation,
    flaw,
    framing,
    document,
    others: fc.array(other, { maxLength: 3 }),
    at: fc.nat(),
    shouts: fc.boolean(),
  })
  .map((choice) => {
    const [path, isOurs] = choice.target;
    const isOld = choice.version === '1.0';
    const [frame, framingStatus] = choice.framing;
    const [framingLines, body] = isOld
      ? [[`Content-Length: ${choice.document.length}`], choice.document]
      : frame(choice.document, choice.at % (choice.document.length + 1));
    const isFlawed = choice.flaw.length > 0;
    const usedMethod = isFlawed ? 'POST' : choice.method;
    const choices = [choice.credentials, choice.mediaType, choice.contentCoding] as const;
    const lines = [
      ...choice.others,
      ...choices.flatMap(([each]) => each),
      ...choice.expectation[0],
      ...choice.flaw,
      ...framingLines,
      'Host: localhost',
      ...(choice.version === '1.1, the last one' ? ['Connection: close'] : []),
    ].map((line) => (choice.shouts ? line.replace(/^[^:]+/, (name) => name.toUpperCase()) : line));
    const head = [`${usedMethod} ${path} HTTP/${isOld ? '1.0' : '1.1'}`, ...lines];

    function expected(): Expected {
      if (isFlawed) return [400, 400];
      const failures = [
        isOld ? undefined : choice.expectation[1],
        choice.credentials[1],
        isOurs ? undefined : 404,
        usedMethod === 'POST' ? undefined : 405,
        choice.mediaType[1],
        choice.contentCoding[1],
        isOld ? undefined : framingStatus,
      ];
      const status = failures.find((each) => each !== undefined);
      if (status !== undefined) return [status === 415 ? 400 : status, status];
      const verdict = judgeBody(choice.document);
      return typeof verdict === 'number' ? [400, verdict] : verdict;
    }

    const bytes = Buffer.concat([Buffer.from(`${head.join('\r\n')}\r\n\r\n`, 'latin1'), body]);
    return {
      bytes,
      isHead: usedMethod === 'HEAD',
      isFlawed,
      mayClose:
        isFlawed ||
        choice.version !== '1.1' ||
        choice.expectation[0].length > 0 ||
        framingLines.some((line) => line.startsWith('Transfer-Encoding')),
      expected: expected(),
      [fc.toStringMethod]: () => JSON.stringify(bytes.toString('latin1')),
    };
  });

const SCRAPS = [
  ...['POST ', 'GET ', 'CONNECT ', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', '/plants', 'a:1', '*', ' '],
  ...[' HTTP/1.1\r\n', ' HTTP/1.0\r\n', ' HTTP/9.9\r\n', '\r\n', '\r\n\r\n', '\n', '\r', '\0'],
  ...['Host: x\r\n', `Authorization: Bearer ${TOKEN}\r\n`, 'Content-Type: application/json\r\n'],
  ...['Content-Length: 2\r\n', 'Content-Length: -1\r\n', 'Transfer-Encoding: chunked\r\n', '{}'],
  ...['Expect: 100-continue\r\n', 'Connection: Upgrade\r\nUpgrade: websocket\r\n', '0\r\n\r\n'],
  ...['2\r\n{}\r\n', 'ffffffffffffffffff\r\n', `1;${'x'.repeat(17_000)}\r\n`, ' folded\r\n', '[1]'],
  ...[`X: ${'y'.repeat(17_000)}\r\n`, '\x16\x03\x01\x02\x00\x01', 'Trailer: a\r\n', ': \r\n'],
];

/** Bytes that look as if they were requests, and in which no plant is. */
export const scraps: fc.Arbitrary<Buffer> = fc
  .array(
    fc.oneof(
      {
        arbitrary: fc.constantFrom(...SCRAPS).map((text) => Buffer.from(text, 'latin1')),
        weight: 9,
      },
      { arbitrary: fc.uint8Array({ maxLength: 8 }).map((bytes) => Buffer.from(bytes)), weight: 1 },
    ),
    { maxLength: 16 },
  )
  .map((parts) => Buffer.concat(parts));
