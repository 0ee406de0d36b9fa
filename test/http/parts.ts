import { TOKEN, type Message } from '../helpers/client.js';

/** Values of one part of a request, and the answer that they get. */
export interface Part {
  readonly request: (value: string) => Message;
  readonly stored: readonly string[];
  readonly refused: readonly string[];
  readonly status: number;
  /** Default: the status. */
  readonly error?: number;
}

const inHeader =
  (name: string): Part['request'] =>
  (value) => ({ headers: { [name]: value } });

/** In the order in which they are checked. */
export const PARTS: Readonly<Record<string, Part>> = {
  // RFC 3986, section 3.2.2.
  Host: {
    request: inHeader('Host'),
    stored: ['', 'plants.example:8080', '[v1.fe80::a+b]:1', "a_b~c%C3%A5!$&'()*,;="],
    refused: Array.from(' /@?#\\"<>^`{|}\u00e9', (character) => `a${character}b`),
    status: 400,
  },
  Authorization: {
    request: inHeader('Authorization'),
    stored: [`bEARER   ${TOKEN} `],
    refused: ['', TOKEN, `Basic ${TOKEN}`, `Bearer ${TOKEN}n`, `Bearer ${TOKEN} ${TOKEN}`],
    status: 401,
  },
  'the target': {
    request: (target) => ({ target }),
    stored: [
      '/plants',
      '/plants?',
      '/plants?id=8&name=/elsewhere#b',
      'http://localhost/plants',
      'HTTPS://user@[::1]:80/plants?a=b',
    ],
    refused: [
      '/plants/',
      '//plants',
      '/plants#a',
      '/Plants',
      '/plantsx',
      '/%70lants',
      '/a?x=http://localhost/plants',
      'http://localhost//plants',
      'http://localhost?/plants',
    ],
    status: 404,
  },
  'the method': {
    request: (method) => ({ method }),
    stored: ['POST'],
    refused: ['GET', 'OPTIONS', 'PUT', 'PATCH', 'DELETE', 'TRACE'],
    status: 405,
  },
  'Content-Type': {
    request: inHeader('Content-Type'),
    stored: [
      'Application/JSON',
      'application/json ; charset="UTF-8"',
      'application/json;charset=utf8; odata=verbose; a="b;c"',
      'application/json; x-charset=latin1;',
      `application/json; a=${'b'.repeat(7_000)}`,
    ],
    refused: [
      '',
      'application/json5',
      'application/json, text/plain',
      'application/json charset=utf-8',
      'application/json; charset=utf-16',
      'application/json; charset=xutf-8',
      'application/json; charset=utf-8x',
      'application/json; charset=utf-8; charset=latin1',
    ],
    status: 400,
    error: 415,
  },
  'Content-Encoding': {
    request: inHeader('Content-Encoding'),
    stored: ['identity', 'Identity'],
    refused: ['', 'gzip', 'identity, gzip', 'identity, identity'],
    status: 400,
    error: 415,
  },
};
