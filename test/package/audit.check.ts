import { once } from 'node:events';
import {
  chmodSync,
  chownSync,
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { connect, type SecureVersion } from 'node:tls';
import { fileURLToPath } from 'node:url';

import t, { type Test } from 'tap';
import ts from 'typescript';

import { encodeRecord } from '../../dist/log/encode.js';
import { selfSigned } from '../helpers/certificate.js';
import { statusWith } from '../helpers/client.js';
import { folderOutside, INSTALL_SCRIPTS, execute } from '../helpers/command.js';
import { block, codeSpans, read, rows } from '../helpers/documents.js';
import { exactly } from '../helpers/exactly.js';
import { scrape } from '../helpers/metrics.js';
import { missing } from '../helpers/needs.js';
import { FERN, FERN_JSON, IVY } from '../helpers/plants.js';
import { launch, start, type LaunchOptions, type Program } from '../helpers/program.js';

/** A comment that begins its line. */
const COMMENT = /^\s*(?:\/\/.*|\/\*[^]*?\*\/)$/gm;
const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const INSTALLED = block('What is installed', 'sh');
const STRICT = block('What the code contains', 'sh');
const PERMISSION = block('What Node can forbid', 'sh');

const PROGRAM = [process.execPath, 'dist/server.js'];
const NODE_FIRST = { PATH: `${dirname(process.execPath)}:${process.env.PATH}` };

const INSTALLATION = folderOutside(t);
for (const name of ['package.json', 'dist', 'node_modules/typebox'])
  cpSync(join(ROOT, name), join(INSTALLATION, name), { recursive: true });
const INSTALLED_FILES = readdirSync(INSTALLATION);

interface Manifest {
  readonly version: string;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly scripts?: Readonly<Record<string, string>>;
}

function manifest(path: string): Manifest {
  return JSON.parse(readFileSync(join(ROOT, path, 'package.json'), 'utf8')) as Manifest;
}

t.test(
  'only typebox is installed, in one version, and a built program needs no more',
  async (t) => {
    const { version } = manifest('node_modules/typebox');
    t.strictSame(manifest('.').dependencies, { typebox: version });
    const folder = t.testdir();
    for (const name of ['package.json', 'package-lock.json', '.npmrc', 'dist'])
      cpSync(join(ROOT, name), join(folder, name), { recursive: true });
    const [install = '', list = '', sbom = ''] = INSTALLED.trim().split('\n');
    await execute(folder, 'env', 'npm_config_prefer_offline=true', 'sh', '-c', install);
    const packages = readdirSync(join(folder, 'node_modules')).filter(
      (name) => !name.startsWith('.'),
    );
    t.strictSame(packages, ['typebox']);
    t.match(
      await execute(folder, 'sh', '-c', list),
      new RegExp(`^\\S+ \\S+\n\\S+ typebox@${version}\n`),
    );
    t.match(JSON.parse(await execute(folder, 'sh', '-c', sbom)), { components: { length: 1 } });
    await execute(folder, process.execPath, 'dist/server.js', '--version');
  },
);

t.test('neither the dependency nor a package of the lock file has install scripts', async (t) => {
  const path = 'node_modules/typebox';
  const { scripts = {} } = manifest(path);
  for (const name of INSTALL_SCRIPTS) t.notOk(name in scripts, name);
  t.notOk(readdirSync(join(ROOT, path)).includes('binding.gyp'));
  t.notMatch(readFileSync(join(ROOT, 'package-lock.json'), 'utf8'), 'hasInstallScript');
});

t.test('the code does not generate or load code dynamically', async (t) => {
  const importing = [];
  for (const name of filesIn('dist', '.js')) {
    const code = codeOf(name).replaceAll(COMMENT, '');
    t.notMatch(code, /(?<!')\b(?:eval|Function|require|createRequire|dlopen)\b/, name);
    if (/\bimport\(/.test(code)) importing.push(name);
  }
  t.strictSame(importing.toSorted(), ['program/database.js', 'server.js']);
  for (const folder of ['dist', 'node_modules/typebox'])
    t.strictSame(filesIn(folder, '.node'), [], `no native add-on in ${folder}`);
});

t.test('the package imports only typebox and the modules that SECURITY.md lists', async (t) => {
  // Only an application that imports plant-store/postgres loads that folder, and pg.
  const files = filesIn('dist', '.js').filter((name) => !name.startsWith('postgres/'));
  const imported = files
    .flatMap((name) => ts.preProcessFile(codeOf(name)).importedFiles)
    .map(({ fileName }) => fileName.replace(/^node:(\w+).*/, '$1'))
    .filter((name) => !name.startsWith('.'));
  const [, list = ''] =
    / imports these modules of Node: ([^.]*)\./.exec(read('.github/SECURITY.md')) ?? [];
  const listed = [...codeSpans(list), 'assert', 'typebox/schema'];
  t.strictSame([...new Set(imported)].toSorted(), listed.toSorted());
  const tests = files.filter((name) => /'(?:node:assert|.*store-contract\.js)/.test(codeOf(name)));
  t.strictSame(tests, ['store-contract.js'], 'no other file loads the tests of a store');
});

const codeOf = (name: string): string => readFileSync(join(ROOT, 'dist', name), 'utf8');

t.test('the build output has the comments of its sources, and no type is any', async (t) => {
  t.match(codeOf('http/auth.js'), '/** RFC 6750, section 2.1. */');
  for (const name of filesIn('dist', '.d.ts'))
    t.notMatch(codeOf(name).replaceAll(COMMENT, ''), /\bany\b/, name);
});

/** The names of the files in a folder that have this ending. */
function filesIn(folder: string, ending: string): string[] {
  const names = readdirSync(join(ROOT, folder), { encoding: 'utf8', recursive: true });
  return names.filter((name) => name.endsWith(ending));
}

t.test('the program serves without code from strings, and with frozen intrinsics', async (t) => {
  installProgram();
  await expectServing(t, { command: ['sh', '-c', `exec ${STRICT}`], env: NODE_FIRST });
});

const TRACED = 'trace=bind,connect,execve,execveat,fork,vfork,clone,clone3';

t.test(
  'the program starts no process, opens no connection, and listens on its port and its lock only',
  { skip: missing('strace') },
  async (t) => {
    const options = ['-D', '-f', '-qq', '-e', TRACED, '-e', 'signal=none', '-o', 'trace'];
    installProgram();
    await expectServing(t, { under: ['strace', ...options] });
    const [first, ...calls] = readFileSync(join(INSTALLATION, 'trace'), 'utf8').trim().split('\n');
    t.match(first, 'execve(');
    const lock = / bind\(\d+, \{sa_family=AF_UNIX, sun_path="[^"]+\/\.plants-/;
    const others = calls.filter((call) => !call.includes('CLONE_THREAD'));
    t.match(others, exactly(lock, / bind\(\d+, \{sa_family=AF_INET, /));
  },
);

/** Notes which environment variables are read by code that is not Node's own. */
const WATCH = `data:text/javascript,${encodeURIComponent(`
  import { writeFileSync } from 'node:fs';
  const names = new Set();
  const noted = (operation) => (target, name, ...rest) => {
    const callers = new Error().stack.split('\\n').slice(2);
    const caller = callers.find((line) => !line.includes('<anonymous>')) ?? '';
    if (!caller.includes('node:')) names.add(String(name ?? 'all of them'));
    return Reflect[operation](target, name, ...rest);
  };
  const operations = ['get', 'has', 'ownKeys', 'getOwnPropertyDescriptor'];
  const handler = Object.fromEntries(operations.map((name) => [name, noted(name)]));
  Object.defineProperty(process, 'env', { value: new Proxy(process.env, handler) });
  process.on('exit', () => writeFileSync('names.json', JSON.stringify([...names])));
`)}`;

t.test('the program reads no environment variables but those that SECURITY.md lists', async (t) => {
  installProgram();
  await expectServing(t, { command: [process.execPath, '--import', WATCH, 'dist/server.js'] });
  const names = JSON.parse(readFileSync(join(INSTALLATION, 'names.json'), 'utf8')) as string[];
  t.ok(names.includes('PLANT_STORE_FILE'));
  for (const name of names) t.match(name, /^(?:PLANT_STORE_.*|LISTEN_PID|LISTEN_FDS|all of them)$/);
});

t.test('TLS 1.2 and 1.3 are offered, and no older version', async (t) => {
  const { cert, key } = selfSigned();
  const env = { PLANT_STORE_TLS_CERT: 'cert', PLANT_STORE_TLS_KEY: 'key' };
  const { port } = await start(t, { cwd: t.testdir({ cert, key }), env });
  const connectWith = async (version: SecureVersion): Promise<void> => {
    // OpenSSL's default level of security refuses TLS 1.1 by itself.
    const ciphers = 'DEFAULT:@SECLEVEL=0';
    const versions = { minVersion: version, maxVersion: version, ciphers };
    const socket = connect({ port, host: 'localhost', ca: cert, ...versions });
    await once(socket, 'secureConnect');
    socket.destroy();
  };
  await connectWith('TLSv1.2');
  await connectWith('TLSv1.3');
  await t.rejects(connectWith('TLSv1.1'), { code: 'ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION' });
});

const NOBODY = 65534;

t.test(
  'the program serves as nobody, with only the data folder writable',
  { skip: missing('the right to mount') },
  async (t) => {
    installProgram();
    chmodSync(INSTALLATION, 0o755);
    for (const name of ['data', 'data/plants.jsonl'])
      chownSync(join(INSTALLATION, name), NOBODY, NOBODY);
    writeFileSync(join(INSTALLATION, 'node'), '');
    const script = `
      mount --make-rprivate /
      mount --bind . .
      cd "$PWD"
      mount --bind data data
      mount --bind '${process.execPath}' node
      mount -o remount,bind,ro .
      mount -o remount,bind,ro /
      if touch probe || touch /probe; then exit 1; fi
      exec setpriv --reuid=${NOBODY} --regid=${NOBODY} --clear-groups --no-new-privs \\
        --bounding-set=-all ./node dist/server.js`;
    await expectServing(t, { command: ['unshare', '--mount', 'sh', '-euc', script] });
  },
);

const [major = '', minor = ''] = process.versions.node.split('.');
const [, flags = ''] =
  rows('What Node can forbid').find(([releases = '']) =>
    releases.split(', ').some((each) => [major, `${major}.${minor}`].includes(each)),
  ) ?? [];
const permitted = PERMISSION.replace(
  /^FLAGS=.*$/m,
  `FLAGS='${codeSpans(flags).join(' ')}'`,
).replace(/^node/m, 'exec node');

const noFlags = flags === '' && `SECURITY.md has no flags for Node ${major}`;

t.test("under Node's permission model", { skip: noFlags }, async (t) => {
  await t.test('the program serves plants, and the monitor answers', async (t) => {
    installProgram();
    const env = { ...NODE_FIRST, PLANT_STORE_MONITOR_PORT: '0' };
    await expectServing(t, { command: ['sh', '-euc', permitted], env }, async (program) => {
      const [, monitor = ''] = await program.says('stdout', /^monitor: (.*)\n/m);
      t.equal(await (await fetch(`${monitor}/readyz`)).text(), 'ok');
      const samples = await scrape(monitor);
      t.equal(samples.get('plant_store_log_plants'), 2);
      t.ok((samples.get('process_resident_memory_bytes') ?? 0) > 1e6);
    });
  });

  await t.test('the program cannot write outside the data folder', async (t) => {
    installProgram();
    const env = { ...NODE_FIRST, PLANT_STORE_FILE: 'elsewhere/plants.jsonl' };
    const program = launch(t, { cwd: INSTALLATION, env, command: ['sh', '-euc', permitted] });
    t.match(await program.ended, { code: 2 });
    t.match(program.stderr, /restricted/);
    t.notOk(readdirSync(INSTALLATION).includes('elsewhere'));
  });
});

/**
 * Restores the program as it is installed, away from everything that it is developed with. The last
 * line of its log is torn, as after a crash.
 */
function installProgram(): void {
  for (const name of readdirSync(INSTALLATION))
    if (!INSTALLED_FILES.includes(name)) rmSync(join(INSTALLATION, name), { recursive: true });
  mkdirSync(join(INSTALLATION, 'data'));
  writeFileSync(join(INSTALLATION, 'data/plants.jsonl'), `${encodeRecord(IVY)}{"id":2,"na`);
}

/**
 * Starts the installed program, checks that it stores plants, then the rest, and that it ends with
 * code 0.
 */
async function expectServing(
  t: Test,
  options: LaunchOptions,
  check?: (program: Program) => Promise<void>,
): Promise<void> {
  const program = await start(t, { command: PROGRAM, ...options, cwd: INSTALLATION });
  const post = (body: string, token = program.token): Promise<number> =>
    statusWith(t, program.port, token, body);
  t.strictSame(
    [await post(FERN_JSON), await post(FERN_JSON), await post('{}'), await post('', 'wrong')],
    [200, 200, 400, 401],
  );
  await check?.(program);
  t.match(await program.stop('SIGTERM'), { code: 0 });
  t.ok(readFileSync(program.log, 'utf8').startsWith(encodeRecord(IVY) + encodeRecord(FERN)));
}
