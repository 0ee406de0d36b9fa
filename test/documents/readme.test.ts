import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import t from 'tap';

import { REQUEST_COST } from '../../dist/http/budget.js';
import { failures } from '../../dist/http/failures.js';
import {
  DEFAULT_LIMITS,
  DRAIN,
  MAX_HEADER_LINES,
  MAX_LIMITS,
  MAX_REFUSED_BYTES,
  MAX_TOKEN_LENGTH,
  MAX_TOKENS,
} from '../../dist/http/limits.js';
import { openapi } from '../../dist/index.js';
import { HANG_MS } from '../../dist/log/commit.js';
import { MAX_RECORD_BYTES } from '../../dist/log/record.js';
import { MEMBERS } from '../../dist/plant.js';
import { EXIT } from '../../dist/program/exit.js';
import { CONNECTION_LIMITS, HEAD_MS } from '../../dist/program/server/http-server.js';
import { MONITOR_LIMITS } from '../../dist/program/server/monitor.js';
import { STOP_TIMES } from '../../dist/program/server/stop.js';
import { SHUTDOWN_MS } from '../../dist/program/signals.js';
import { REPORT_RATE } from '../../dist/report.js';
import {
  block,
  blocks,
  blocksIn,
  codeSpans,
  DOCUMENTS,
  EXAMPLES,
  read,
  rows,
  shell,
} from '../helpers/documents.js';
import { runHere, start } from '../helpers/program.js';
import { FIXED_MIB, PER_BODY_BYTE, TLS_KIB } from '../hostile/memory.js';

const { scripts } = JSON.parse(readFileSync('package.json', 'utf8')) as {
  scripts: Record<string, string>;
};

t.test('the first screen of README.md starts the service and stores a plant', async (t) => {
  const [install, curl = ''] = blocks('Try it', 'sh');
  t.equal(install, 'npm ci && npm start\n');
  t.equal(scripts.start, 'npm run build && exec node dist/server.js');

  const cwd = t.testdir();
  const { url, stdout } = await start(t, { cwd });
  const shape = (lines: string) => lines.replace(/ \/.*\/| http:\/\/\S+/g, ' …');
  t.equal(shape(stdout), shape(block('Try it', 'text')));

  const answer = await shell(curl.replace('http://127.0.0.1:8080', url), cwd);
  const [head = '', body] = answer.split('\r\n\r\n');
  const [shownHead = '', shownBody] = block('Try it', 'http').split('\n\n');
  for (const line of shownHead.split('\n')) t.ok(head.split('\r\n').includes(line), line);
  t.equal(`${body}\n`, shownBody);

  const { error, message } = failures.conflict;
  t.strictSame(JSON.parse(block('The API', 'json')), { error, message });
});

t.test('every relative link in a document leads to a file, and to a heading in it', async (t) => {
  const link = /\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)/g;
  const others = ['test/bench/results.md', 'test/crash-states/README.md'];
  for (const document of [...DOCUMENTS, ...others])
    for (const [, path = '', fragment] of readFileSync(document, 'utf8').matchAll(link)) {
      const target = path === '' ? document : join(dirname(document), path);
      t.ok(existsSync(target), `${document}: ${path}`);
      if (fragment !== undefined)
        t.ok(fragmentsOf(target).includes(fragment), `${document}: ${path}#${fragment}`);
    }
});

/** The fragments of a document's headings, as GitHub derives them. */
function fragmentsOf(document: string): string[] {
  const headings = readFileSync(document, 'utf8').matchAll(/^#+ (.*)$/gm);
  return [...headings].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replace(/[^\w -]/g, '')
      .replaceAll(' ', '-'),
  );
}

/** The documents whose programs are parts of files in `test/embedding/examples/`. */
const WITH_PROGRAMS = [
  'README.md',
  'src/http/README.md',
  'src/log/README.md',
  'src/postgres/README.md',
] as const;

/** The beginnings of blocks that other tests run: those of the package and of the log. */
const OTHERS = /^(?:server\.ext|\/\/ jest\.config\.cjs|import createClient|const bodySerializer)/;

t.test('each program in a document is a part of an example that is compiled and run', async (t) => {
  const beginning = block('The handler in an application', 'ts');
  for (const document of WITH_PROGRAMS)
    for (const code of ['ts', 'js'].flatMap((tag) => blocksIn(read(document), tag))) {
      if (OTHERS.test(code)) continue;
      const quoted = Object.values(EXAMPLES).find((example) => example.includes(code)) ?? '';
      t.match(quoted, code, document);
      // The document says that its examples begin with the lines of that file.
      if (/\bhandler\b/.test(code) && code !== beginning) t.match(quoted, " from './handler.js';");
    }
});

t.test('the memory of ids that README.md names was measured', async (t) => {
  const [, plants, memory] = /\((\d+) million: (\d+) MiB\)/.exec(read('README.md')) ?? [];
  const results = readFileSync('test/bench/results-growth.md', 'utf8');
  t.match(
    results,
    new RegExp(`^\\| plant-store +\\| +${plants},000,000 (?:[^|]*\\| +){3}${memory} \\|`, 'm'),
  );
});

t.test('each guarantee of SECURITY.md names the files of the tests that show it', async (t) => {
  const [, list = ''] =
    /^## What is guaranteed\n\n.*\n\n([^]*?)\n\n/m.exec(read('.github/SECURITY.md')) ?? [];
  const guarantees = list.split(/\n(?=- )/);
  t.ok(guarantees.length > 1);
  for (const guarantee of guarantees) {
    const files = codeSpans(guarantee).filter((span) =>
      /^test\/.*\.(?:test|check)\.ts$/.test(span),
    );
    t.ok(files.length > 0, guarantee);
    for (const file of files) t.ok(existsSync(file), file);
  }
});

t.test('the maps of CONTRIBUTING.md have every folder of src/ and test/', async (t) => {
  const text = read('.github/CONTRIBUTING.md');
  for (const folder of ['src', 'test'])
    for (const each of readdirSync(folder, { withFileTypes: true }))
      // A folder of test/ with the name of one of src/ mirrors it.
      if (each.isDirectory() && (folder === 'src' || !existsSync(join('src', each.name))))
        t.match(
          text,
          new RegExp(`\\]\\(\\.\\./${folder}/${each.name}[/)]`),
          `${folder}/${each.name}`,
        );
});

t.test('no two exports in test/ have the same name', async (t) => {
  const places = new Map<string, string>();
  for (const path of readdirSync('.test', { encoding: 'utf8', recursive: true })) {
    if (path.includes('node_modules') || !path.endsWith('.js')) continue;
    const exported = /^export (?:async )?(?:function\*?|const|let|class) (\w+)/gm;
    for (const [, name = ''] of readFileSync(join('.test', path), 'utf8').matchAll(exported)) {
      t.equal(places.get(name), undefined, `${name}: ${path}`);
      places.set(name, path);
    }
  }
  t.ok(places.size > 100, 'the exports are found');
});

t.test('the paths that CONTRIBUTING.md names exist', async (t) => {
  const text = read('.github/CONTRIBUTING.md').replace(/^```[^]*?^```$/gm, '');
  const paths = codeSpans(text).filter((span) => /^[.\w/-]+\/[.\w-]*$/.test(span));
  t.ok(paths.includes('.ci/run'));
  for (const path of paths)
    t.ok(
      ['.', 'src', 'test'].some((folder) => existsSync(join(folder, path))),
      path,
    );
});

t.test('a recipe that contains a path contains all paths of the OpenAPI document', async (t) => {
  const parts = read('src/http/README.md').match(/^```[^]*?^```$|^.+$/gm) ?? [];
  const recipes = parts.filter((part) => part.includes("'/plants'"));
  t.ok(recipes.length > 0);
  for (const recipe of recipes)
    for (const path of Object.keys(openapi.paths)) t.match(recipe, `'${path}'`, recipe);
});

t.test('a name that a document places in a file is in that file', async (t) => {
  const place = /`(\w+)`\s+in\s+(?:\[`[^`]+`\]\(([^)]+)\)|`([\w/-]+\.ts)`)/g;
  let places = 0;
  for (const document of DOCUMENTS)
    for (const [text, name, link, file] of read(document).matchAll(place)) {
      const content = readFileSync(join(dirname(document), link ?? file ?? ''), 'utf8');
      t.match(content, new RegExp(`\\b${name}\\b`), `${document}: ${text}`);
      places++;
    }
  t.ok(places > 0);
});

t.test('the npm commands in the documents exist', async (t) => {
  for (const document of DOCUMENTS)
    for (const [command, name = ''] of read(document).matchAll(/npm (?:run )?([a-z][\w:]*)/g))
      t.ok(
        name in scripts ||
          ['ci', 'init', 'install', 'ls', 'pack', 'prune', 'publish', 'sbom', 'version'].includes(
            name,
          ),
        `${document}: ${command}`,
      );
  t.match(read('.github/CONTRIBUTING.md'), '`npm ci && npm test`');
  t.equal(block('Tests', 'sh'), 'npm ci && npm test\n');
});

t.test(
  'the benchmarks that a document names exist, and have the options of its commands',
  async (t) => {
    const commands = read('test/bench/README.md').matchAll(/npm run bench (\w+)(?: -- (.*))?$/gm);
    for (const [command, name = '', options = ''] of commands) {
      const source = readFileSync(`test/bench/${name}.js`, 'utf8');
      for (const [, option = ''] of options.matchAll(/--([\w-]+)/g))
        t.match(source, ` ${option}: { type: `, command);
    }
  },
);

t.test('the documents name every group of checks, and no other group', async (t) => {
  const groups = readFileSync('test/run', 'utf8').match(/^[\w-]+(?=\)(?: |$))/gm) ?? [];
  const named = DOCUMENTS.flatMap((document) =>
    [...read(document).matchAll(/npm run check ([\w-]+)/g)].map(([, name]) => name),
  );
  t.strictSame([...new Set(named), 'unit'].toSorted(), groups.toSorted());
});

t.test('the documented line of the log has all members of a record', async (t) => {
  const members = block('The format', 'text').matchAll(/"(\w+)":/g);
  t.strictSame(
    [...members].map(([, name]) => name),
    ['id', ...MEMBERS, 'crc32'],
  );
});

t.test('the documented command that runs one test names a test that exists', async (t) => {
  const command = /^TAP_GREP='(.+)' node \.(\S+)\.js$/m;
  const [, name = '', file = ''] = command.exec(block('Running one test', 'sh')) ?? [];
  t.match(readFileSync(`${file}.ts`, 'utf8'), new RegExp(`t\\.test\\(\\s*'.*${name}`));
});

t.test('the table of options lists every option and its default', async (t) => {
  const report = ['`report`', '`console.error`'];
  const limits = Object.entries(DEFAULT_LIMITS).map(([name, value]) => [
    `\`${name}\``,
    `\`${value}\``,
  ]);
  t.strictSame(
    rows('Options of the handler').map(([name, value]) => [name, value]),
    [...limits, report],
  );
});

t.test(
  '--help prints the table of settings, and the commands that a block of a document runs',
  async (t) => {
    const shown = rows('All settings').map((cells) =>
      cells.map((cell) => cell.replaceAll('`', '')),
    );
    const width = Math.max(...shown.map(([name = '']) => name.length));
    const lines = shown.map(([name = '', fallback = '', about = '']) => {
      return `  ${name.padEnd(width)}  ${about}${fallback && ` (${fallback})`}`;
    });
    const { code, stdout } = await runHere(t, { args: ['--help'] });
    const [, printed = ''] = /variables:\n\n([^]*?)\n\n/.exec(stdout) ?? [];
    t.strictSame(printed.split('\n'), lines);
    t.equal(code, 0);

    const run = blocksIn(read('src/log/README.md'), 'sh').join('');
    const commands = [...stdout.matchAll(/ plant-store (\w+) /g)].map(([, name = '']) => name);
    t.ok(commands.includes('verify'));
    for (const command of commands) t.match(run, `node dist/server.js ${command}`);
  },
);

t.test('the settings that most users set are rows of the table of all settings', async (t) => {
  const all = rows('All settings').map(String);
  for (const row of rows('Settings')) t.ok(all.includes(String(row)), String(row));
});

t.test('the table of limits has the numbers in the code', async (t) => {
  const shown = rows('Limits').map(([limit, value = '']) => [
    limit,
    ...[...value.matchAll(/\d+/g)].map(Number),
  ]);
  t.strictSame(shown, [
    ['`maxBodyBytes`, `PLANT_STORE_MAX_BODY`', MAX_LIMITS.maxBodyBytes],
    ['memory reserved for a request', ...Object.values(REQUEST_COST)],
    ['memory of refused requests, until their responses are flushed', MAX_REFUSED_BYTES],
    ['rest of the body of a refused request', DRAIN.maxBytes, DRAIN.timeoutMs],
    ['token', MAX_TOKEN_LENGTH, MAX_TOKENS],
    ['header lines of a request', MAX_HEADER_LINES],
    ['header section', CONNECTION_LIMITS.maxHeaderSize],
    ['TLS handshake', CONNECTION_LIMITS.handshakeTimeout],
    ['head of a request', CONNECTION_LIMITS.headersTimeout],
    ['body of a plant, after its head', DEFAULT_LIMITS.bodyTimeoutMs],
    ['any other request, from its first byte to its last', CONNECTION_LIMITS.requestTimeout],
    // test/program/settings/rules.test.ts compares the settings with these.
    ['idle connection, `PLANT_STORE_KEEP_ALIVE_SECONDS`', 86_400, HEAD_MS / 1_000],
    ['connections to the monitor', MONITOR_LIMITS.maxConnections, MONITOR_LIMITS.connectionMs],
    ['shutdown', SHUTDOWN_MS, STOP_TIMES.requestsMs],
    ['reports of internal errors and overload', REPORT_RATE.count, REPORT_RATE.periodMs],
    ['line of the log', MAX_RECORD_BYTES],
    ['write to the log', HANG_MS],
    // test/log/ids.test.ts compares the index with these.
    ['index in memory', 16, 40],
    ['peak memory under overload', FIXED_MIB],
    ['the same, with TLS', TLS_KIB],
    ['the same, with a larger body limit', PER_BODY_BYTE],
  ]);
});

t.test('the tables of symptoms have messages and all exit codes of the program', async (t) => {
  const paths = readdirSync('src', { encoding: 'utf8', recursive: true });
  const source = paths
    .filter((path) => path.endsWith('.ts'))
    .map((path) => readFileSync(join('src', path), 'utf8'))
    .join('');
  const ended = rows('After it has ended').map(([code = '']) => code);
  const symptoms = [...rows('While it runs').map(([symptom = '']) => symptom), ...ended];
  const messages = symptoms.flatMap((symptom) => [...symptom.matchAll(/"(.+?)"/g)]);
  t.ok(messages.length > 0);
  for (const [, message = ''] of messages)
    for (const part of message.split('…')) t.ok(source.includes(part), message);
  for (const code of Object.values(EXIT))
    t.ok(
      ended.some((each) => parseInt(each) === code),
      String(code),
    );
});
