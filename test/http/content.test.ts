import t from 'tap';

import { exchange, message, type Message } from '../helpers/client.js';
import { serve } from '../helpers/service.js';
import { expectDecisions, inHeader } from './support.js';

t.test('only JSON in UTF-8 without a content coding is stored', async (t) => {
  await expectDecisions(t, {
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
  });
});

t.test('Content-Type must come exactly once, and Content-Encoding at most once', async (t) => {
  const { port } = await serve(t);
  const type = 'application/json';
  const rows: readonly (Message['headers'] & object)[] = [
    { 'Content-Type': undefined },
    { 'Content-Type': [type, ''] },
    { 'Content-Type': type, 'content-type': type },
    { 'Content-Encoding': 'identity', 'CONTENT-ENCODING': 'identity' },
  ];
  for (const headers of rows) {
    const { body } = await exchange(t, port, message({ headers }));
    t.match(JSON.parse(body), { error: 415 }, JSON.stringify(headers));
  }
});
