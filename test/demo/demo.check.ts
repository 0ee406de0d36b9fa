import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

import t from 'tap';

const DEMO = 'test/demo/demo.js';

/** Runs the demo for one kill, with a folder for its temporary files. */
function runDemo(script: string, temporary: string) {
  const env = { TMPDIR: temporary };
  const { status, stdout, stderr } = spawnSync(process.execPath, [script, '1'], {
    cwd: temporary,
    env,
    encoding: 'utf8',
  });
  return { status, stdout, stderr, left: readdirSync(temporary) };
}

t.test('the demo kills the program, and finds every plant that it acknowledged', async (t) => {
  const { scripts } = JSON.parse(readFileSync('package.json', 'utf8')) as {
    readonly scripts: { readonly demo: string };
  };
  t.equal(scripts.demo, `npm run build && node ${DEMO}`);
  const { stdout, ...ended } = runDemo(resolve(DEMO), t.testdir());
  t.strictSame(ended, { status: 0, stderr: '', left: [] });
  t.match(stdout, /^(?:kills 1   acknowledged [1-9][\d,]*   lost 0\n){2}$/);
});

/** How servers store the plant in a body: too late, or as another plant. */
const WRONG_SERVERS: Readonly<Record<string, string>> = {
  'answers before it writes': `process.once('SIGTERM', () => { append(body); setImmediate(() => process.exit()); })`,
  'stores another name': `append(body.replace('plant ', 'weed '))`,
  'stores another tag': `append(body.replace('indoor', ''))`,
};

/** A server that prints what the program prints, and stores plants in this way. */
const serverThat = (stores: string): string => `
  import { appendFileSync, mkdirSync, writeFileSync } from 'node:fs';
  import { createServer } from 'node:http';
  import { resolve } from 'node:path';
  import { text } from 'node:stream/consumers';
  const append = (text) => appendFileSync('data/plants.jsonl', text);
  mkdirSync('data', { recursive: true });
  writeFileSync('data/token', 'a-secret-token');
  append('');
  process.setMaxListeners(0);
  const server = createServer(async (req, res) => {
    const body = (await text(req)) + '\\n';
    ${stores};
    res.end('{}');
  });
  server.listen(0, '127.0.0.1', () => {
    console.log('plant-store listening on http://127.0.0.1:' + server.address().port);
    console.log('token: ' + resolve('data/token'));
  });
`;

for (const [what, stores] of Object.entries(WRONG_SERVERS))
  t.test(`the demo fails if a server ${what}`, async (t) => {
    const folder = t.testdir({
      'package.json': '{ "type": "module" }',
      dist: { 'server.js': serverThat(stores) },
      test: { demo: { 'demo.js': readFileSync(DEMO) } },
      temporary: {},
    });
    const { stdout, ...ended } = runDemo(join(folder, DEMO), join(folder, 'temporary'));
    const stderr = 'demo: plants that were answered with 200 are not in the log\n';
    t.strictSame(ended, { status: 1, stderr, left: [] });
    // Answers that the demo reads after the kill are counted, too.
    const [, acknowledged, lost] =
      /^kills 0   acknowledged ([\d,]+)   lost (\d+)\n$/.exec(stdout) ?? [];
    t.ok(Number(lost) > 0 && Number(lost) <= Number(acknowledged?.replaceAll(',', '')), stdout);
  });
