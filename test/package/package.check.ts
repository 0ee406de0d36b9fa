import { cpSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import t, { type Test } from 'tap';

import * as main from '../../dist/index.js';
import * as postgres from '../../dist/postgres/index.js';
import * as contract from '../../dist/store-contract.js';
import { folderOutside, INSTALL_SCRIPTS, execute } from '../helpers/command.js';
import { NEWEST_TYPES, typeFaults, type Compilation } from '../helpers/compile.js';
import { block, blocks, EXAMPLES, read } from '../helpers/documents.js';
import { DONE, launch } from '../helpers/program.js';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const MODULES = join(ROOT, 'node_modules');
const FRAMEWORKS = join(ROOT, 'test/embedding/node_modules');
const TOOLS = join(ROOT, 'test/package/tools/node_modules');

const PACKAGE = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
  readonly version: string;
  readonly devDependencies: Readonly<Record<string, string>>;
};

/** The code of a program that uses all exports of a module. */
function usesAll(specifier: string, exports: object): string {
  const names = Object.keys(exports).join(', ');
  return `import { ${names} } from '${specifier}'; export const all = { ${names} };`;
}

/** Programs that use the package and nothing else. */
const PROGRAMS = {
  ...Object.fromEntries(
    Object.entries(EXAMPLES).filter(([, code]) => !/from '(?!plant-store|node:|\.)/.test(code)),
  ),
  'all.ts': usesAll('plant-store', main),
  'all-of-postgres.ts': usesAll('plant-store/postgres', postgres),
  'all-of-contract.ts': usesAll('plant-store/store-contract', contract),
  'document.ts': `
    import type { OpenAPIV3_1 } from 'openapi-types';
    import { openapi } from 'plant-store';
    import document from 'plant-store/openapi.json' with { type: 'json' };
    export const typed: OpenAPIV3_1.Document = openapi;
    export const description: string = document.paths['/plants'].post.description;
  `,
};
const COMMONJS = {
  'required.cts': `
    import plants = require('plant-store');
    const store: plants.PlantStore = { add: async () => 'created', close: async () => {} };
    export const handler = plants.createPlantHandler({ store, tokens: ['a-secret-token'] });
  `,
};
const EXPORTS = [
  ...['ErrorSchema', 'NewPlantSchema', 'PlantSchema', 'PlantStoreError', 'copyPlant'],
  ...['createPlantHandler', 'openPlantLog', 'openapi', 'readPlantLog'],
].join();
const SCRIPTS = {
  'import.mjs': "import * as plants from 'plant-store'; console.log(Object.keys(plants).join());",
  'require.cjs': "console.log(Object.keys(require('plant-store')).join());",
  'document.cjs': "console.log(require('plant-store/openapi.json').openapi);",
};

// A compiler is as slow as its machine.
t.setTimeout(1_800_000);

const folder = t.testdir({
  node_modules: t.fixture('symlink', FRAMEWORKS),
  clone: { node_modules: t.fixture('symlink', MODULES) },
  consumer: {
    'package.json': '{ "private": true, "type": "module" }',
    ...EXAMPLES,
    ...PROGRAMS,
    ...COMMONJS,
    ...SCRIPTS,
  },
  npmrc: 'ignore-scripts=true\n',
});
const clone = join(folder, 'clone');
const consumer = join(folder, 'consumer');

/** What is built, installed or created in a clone. */
const CREATED = ['.git', '.tap', '.test', 'coverage', 'data', 'dist', 'node_modules'];
for (const name of readdirSync(ROOT))
  if (!CREATED.includes(name))
    cpSync(join(ROOT, name), join(clone, name), {
      recursive: true,
      filter: (path) => !CREATED.includes(basename(path)),
    });

/** The configuration of users who forbid the scripts of packages, as security guides advise. */
const WITHOUT_SCRIPTS = `npm_config_userconfig=${join(folder, 'npmrc')}`;

interface Tarball {
  readonly filename: string;
  readonly files: readonly { readonly path: string }[];
}

const [BUILD = '', INSTALL = ''] = blocks('In your application', 'sh');
const [ci, build = '', pack = ''] = BUILD.trim().split(' && ');
t.equal(ci, 'npm ci --include=dev', 'which .ci/run runs, without NODE_ENV');

/**
 * Packs the clone with a command, which may begin with settings. Resolves to the names in the
 * tarball.
 */
async function packWith(...command: readonly string[]): Promise<Tarball> {
  const packed = await execute(clone, 'env', ...command, '--json');
  return (JSON.parse(packed.slice(packed.indexOf('[\n'))) as [Tarball])[0];
}

await execute(clone, 'env', WITHOUT_SCRIPTS, ...build.split(' '));
const withoutScripts = await packWith(WITHOUT_SCRIPTS, ...pack.split(' '));
// A file that an earlier build has left.
writeFileSync(join(clone, 'dist/removed.js'), '');
const tarball = await packWith(...pack.split(' '));
const tarballPath = join(clone, tarball.filename);
const install = ['install', '--offline', '--install-links', '--ignore-scripts'];
await execute(consumer, 'npm', ...install, tarballPath, join(MODULES, 'typebox'));

const MODULE_NAMES = readdirSync(join(ROOT, 'src'), { encoding: 'utf8', recursive: true })
  .filter((name) => name.endsWith('.ts'))
  .map((name) => name.slice(0, -'.ts'.length));

t.test('the tarball contains the sources and the build output, as they are here', async (t) => {
  const paths = tarball.files.map(({ path }) => path);
  const built = ['.d.ts', '.d.ts.map', '.js', '.js.map'];
  t.strictSame(
    paths
      .filter(
        (path) => !/^(?:\.github|test|src\/program\/deploy)\/|^src\/.*\.(?:md|py)$/.test(path),
      )
      .toSorted(),
    [
      ...['LICENSE', 'README.md', 'package.json', 'dist/openapi.json'],
      ...MODULE_NAMES.flatMap((name) => [
        `src/${name}.ts`,
        ...built.map((extension) => `dist/${name}${extension}`),
      ]),
    ].toSorted(),
  );
  for (const path of paths)
    t.ok(readFileSync(join(clone, path)).equals(readFileSync(join(ROOT, path))), path);
});

t.test('a user who lets npm run no scripts packs the same files', async (t) => {
  const names = ({ files }: Tarball) => files.map(({ path }) => path).toSorted();
  t.strictSame(names(withoutScripts), names(tarball));
});

t.test(
  'each file that a packed document links is packed, except tests and what is about them',
  async (t) => {
    const paths = new Set(tarball.files.map(({ path }) => path));
    const link = /\]\((?!https?:|#)([^)#]+)/g;
    for (const document of paths)
      if (document.endsWith('.md'))
        for (const [, target = ''] of readFileSync(join(clone, document), 'utf8').matchAll(link)) {
          const path = join(dirname(document), target);
          if (/^(?:test\/(?!embedding\/)|\.ci\/|\.github\/CONTRIBUTING\.md$)/.test(path)) continue;
          t.ok(
            [...paths].some((each) => each === path || each.startsWith(`${path}/`)),
            `${document}: ${path}`,
          );
        }
  },
);

t.test('with the package, an application installs typebox, and not pg', async (t) => {
  const packages = readdirSync(join(consumer, 'node_modules')).filter(
    (name) => !name.startsWith('.'),
  );
  t.strictSame(packages, ['plant-store', 'typebox']);
});

t.test('npm runs no script when it installs the package', async (t) => {
  const installed = join(consumer, 'node_modules/plant-store/package.json');
  const { scripts } = JSON.parse(readFileSync(installed, 'utf8')) as { scripts: object };
  for (const name of INSTALL_SCRIPTS) t.notOk(name in scripts, name);
  t.notOk(readdirSync(clone).includes('package.json.orig'));
});

t.test('the contract of a store runs without this repository, under node:test', async (t) => {
  const outside = folderOutside(t);
  cpSync(join(consumer, 'node_modules'), join(outside, 'node_modules'), { recursive: true });
  writeFileSync(join(outside, 'package.json'), '{ "type": "module" }');
  for (const name of ['store.js', 'store.test.js'])
    cpSync(join(ROOT, '.test/embedding/examples', name), join(outside, name));
  const output = await execute(outside, process.execPath, '--test', '--test-reporter=tap');
  t.match(output, `# pass ${contract.storeContract.length}\n`);
  t.match(output, '# fail 0\n');
});

/** The files that the compiler names after a member is added to the schema. */
const FILES_OF_NEW_MEMBER: Readonly<Record<string, readonly string[]>> = {
  string: ['postgres/statements.ts'],
  number: ['plant.ts', 'postgres/rows.ts', 'postgres/statements.ts', 'store-contract.ts'],
};

for (const [type, files] of Object.entries(FILES_OF_NEW_MEMBER))
  t.test(`the compiler names each place that a new member needs: a ${type}`, async (t) => {
    const cwd = t.testdir({ node_modules: t.fixture('symlink', MODULES) });
    for (const name of ['package.json', 'tsconfig.json', 'src'])
      cpSync(join(ROOT, name), join(cwd, name), { recursive: true });
    const path = join(cwd, 'src/plant.ts');
    const schema = readFileSync(path, 'utf8');
    const member = `    height: { type: '${type}', description: '' },\n$&`;
    writeFileSync(path, schema.replace('    tag: {', member));
    const tsc = join(MODULES, 'typescript/bin/tsc');
    const compiled = execute(cwd, process.execPath, tsc, '--noEmit');
    const output = await compiled.catch((error: unknown) => (error as { stdout: string }).stdout);
    const named = [...output.matchAll(/^src\/(\S+)\(\d+,\d+\): error/gm)].map(([, file]) => file);
    t.strictSame([...new Set(named)].toSorted(), files);
  });

/** An application with Hapi: its program begins as the document says. */
const HAPI = `import { server as createServer } from '@hapi/hapi';
  ${block('The handler in an application', 'ts')}
  const server = createServer();
  ${block('Hapi', 'ts')}
  await server.start();
  const headers = { Authorization: 'Bearer a-secret-token', 'Content-Type': 'application/json' };
  const plant = { method: 'POST', headers, body: '{"id":7,"name":"ivy"}' };
  const answers = [await fetch(server.info.uri + '/plants', plant), await fetch(server.info.uri)];
  console.log(...answers.map(({ status }) => status));
  await server.stop();
  await store.close();`;
/** A test that Jest compiles with the configuration of the document. */
const JEST = `import { openPlantLog, type PlantLog } from 'plant-store';
  test('a log stores a plant', async () => {
    const log: PlantLog = await openPlantLog('plants.jsonl');
    expect(await log.add({ id: 7n, name: 'ivy' })).toBe('created');
    await log.close();
  });`;
const PINNED = [
  ...['@hapi/hapi@21.4.10', 'jest@30.5.2'],
  ...['@babel/preset-env@8.0.7', '@babel/preset-typescript@8.0.7'],
];

t.test('an application installs the package as documented, and uses Hapi and Jest', async (t) => {
  const application = folderOutside(t);
  const files = {
    'package.json': '{ "private": true }',
    'hapi.mjs': HAPI,
    'jest.config.cjs': readFileSync(join(ROOT, 'test/embedding/examples/jest.config.cjs')),
    'plants.test.ts': JEST,
  };
  for (const [name, content] of Object.entries(files))
    writeFileSync(join(application, name), content);
  const install = INSTALL.trim().replace('/path/to/plant-store', clone);
  const output = await execute(application, 'sh', '-c', `${install} --prefer-offline 2>&1`);
  t.match(output, 'added ');
  t.notMatch(output, 'npm warn');
  await execute(application, 'npm', 'install', '--prefer-offline', ...PINNED);
  t.equal(await execute(application, process.execPath, 'hapi.mjs'), '200 404\n');
  await execute(application, 'npx', 'jest');
});

t.test('publint and attw report no problem', async (t) => {
  const publint = join(TOOLS, 'publint/src/cli.js');
  t.match(await execute(clone, process.execPath, publint, '--strict', tarballPath), 'All good!');
  const attw = join(TOOLS, '@arethetypeswrong/cli/dist/index.js');
  await t.resolves(execute(clone, process.execPath, attw, '--profile', 'esm-only', tarballPath));
});

/** The path of a release of Node, which npx installs. */
async function nodeOf(release: string): Promise<string> {
  const npx = ['--yes', `--package=node@${release}`, '--', 'node', '-p', 'process.execPath'];
  return (await execute(clone, 'npx', ...npx)).trim();
}

t.test('every supported release of Node can import and require the exports', async (t) => {
  for (const release of ['20.19.0', '22.12.0', '22', '24', '26']) {
    const node = await nodeOf(release);
    t.equal(await execute(consumer, node, 'import.mjs'), `${EXPORTS}\n`, release);
    t.equal(await execute(consumer, node, 'require.cjs'), `${EXPORTS}\n`, release);
    t.match(await execute(consumer, node, 'document.cjs'), /^3\.1\./, release);
  }
});

/** The compilations that must report no error. */
const COMPILATIONS: readonly Compilation[] = [
  {
    release: '5.9',
    resolution: 'nodenext',
    programs: { ...PROGRAMS, ...COMMONJS },
    options: { skipLibCheck: false },
  },
  // The default of `module: commonjs`.
  { release: '5.9', resolution: 'node10', programs: COMMONJS },
  { release: '6', resolution: 'bundler', programs: { ...EXAMPLES, ...PROGRAMS } },
  {
    release: '7',
    resolution: 'nodenext',
    programs: { ...EXAMPLES, ...PROGRAMS, ...COMMONJS },
    options: NEWEST_TYPES,
  },
];

for (const compilation of COMPILATIONS)
  t.test(
    `TypeScript ${compilation.release} compiles, with ${compilation.resolution}`,
    async (t) => {
      t.equal(await typeFaults(consumer, compilation), '');
    },
  );

t.test('npx runs the installed program in any folder', async (t) => {
  const npx = (folder: string, argument: string): Promise<string> =>
    execute(folder, 'npx', '--no', '--prefix', consumer, 'plant-store', argument);
  t.equal(await npx(consumer, '--version'), `${PACKAGE.version}\n`);
  t.match(await npx('/', '--help'), /^Usage: plant-store /);
  const [, script = ''] = /`node (node_modules\S+)`/.exec(read('src/program/README.md')) ?? [];
  t.equal(await execute(consumer, process.execPath, script, '--version'), `${PACKAGE.version}\n`);
});

t.test('npm start builds and serves even if npm runs no other script', async (t) => {
  await execute(clone, 'rm', '-r', 'dist');
  const env = { npm_config_ignore_scripts: 'true' };
  const program = launch(t, { cwd: clone, env, command: ['npm', 'start'] });
  await program.says('stdout', /^token: /m);
  program.send('SIGTERM');
  t.strictSame(await program.ended, DONE);
});

/** The clone without what is built, and with the few packages that a build needs. */
function writeSources(t: Test): string {
  const repository = folderOutside(t);
  const filter = (path: string): boolean => !CREATED.includes(basename(path));
  cpSync(clone, repository, { recursive: true, filter });
  const isNeeded = ([name]: readonly [string, unknown]): boolean =>
    /^(typescript|@types\/(node|pg))$/.test(name);
  const devDependencies = Object.fromEntries(
    Object.entries(PACKAGE.devDependencies).filter(isNeeded),
  );
  writeFileSync(join(repository, 'package.json'), JSON.stringify({ ...PACKAGE, devDependencies }));
  rmSync(join(repository, 'package-lock.json'));
  return repository;
}

t.test('npm builds the package as a member of a workspace, also again', async (t) => {
  const root = folderOutside(t);
  cpSync(writeSources(t), join(root, 'packages/plant-store'), { recursive: true });
  const workspace = '{ "private": true, "workspaces": ["packages/*"] }';
  const files = { 'package.json': workspace, ...SCRIPTS };
  for (const [name, content] of Object.entries(files)) writeFileSync(join(root, name), content);
  await execute(root, 'npm', 'install', '--prefer-offline');
  t.equal(await execute(root, process.execPath, 'import.mjs'), `${EXPORTS}\n`);
  // npm makes the program executable when it links it, but not when it is built again.
  await execute(root, 'npm', 'run', 'build', '--workspace=plant-store');
  const program = 'node_modules/.bin/plant-store';
  t.equal(await execute(root, program, '--version'), `${PACKAGE.version}\n`);
});

t.test('a build without TypeScript says what to install', async (t) => {
  const path = `PATH=${dirname(process.execPath)}:/usr/bin:/bin`;
  const failed: unknown = await execute(clone, 'env', path, '.config/build').catch(
    (error: unknown) => error,
  );
  t.match(failed, { status: 1, stderr: 'npm ci --include=dev' });
});

t.test('npm installs the package from its git address, and it can be imported', async (t) => {
  const repository = writeSources(t);
  const git = ['-c', 'user.name=plants', '-c', 'user.email=plants@example.org'];
  await execute(repository, 'git', 'init', '--quiet');
  await execute(repository, 'git', 'add', '--all');
  await execute(repository, 'git', ...git, 'commit', '--quiet', '--message=all');
  const application = t.testdir({ 'package.json': '{ "private": true }', ...SCRIPTS });
  await execute(application, 'npm', 'install', '--prefer-offline', `git+file://${repository}`);
  t.equal(await execute(application, process.execPath, 'import.mjs'), `${EXPORTS}\n`);
});

t.test("under Yarn's Plug'n'Play, the program and an application open a log", async (t) => {
  const manifest = {
    type: 'module',
    dependencies: { 'plant-store': `file:${tarballPath}` },
    resolutions: { typebox: `portal:${join(MODULES, 'typebox')}` },
  };
  const cwd = t.testdir({
    'package.json': JSON.stringify(manifest),
    // Without this file, Yarn takes the folder for a part of the package around it.
    'yarn.lock': '',
    'plants.jsonl': '{"id":7,"name":"fern"}\n',
    'plants-of-log.js': readFileSync(join(ROOT, '.test/embedding/examples/plants-of-log.js')),
  });
  // Elsewhere than in CI, Yarn may write its lock file by default.
  const settings = [
    ...['YARN_ENABLE_TELEMETRY=0', 'YARN_ENABLE_GLOBAL_CACHE=0'],
    'YARN_ENABLE_IMMUTABLE_INSTALLS=0',
  ];
  const npx = ['npx', '--yes', '--package=@yarnpkg/cli-dist@4.18.1', '--', 'yarn'];
  const yarn = (...args: string[]) => execute(cwd, 'env', ...settings, ...npx, ...args);
  await yarn('install');
  await yarn('plant-store', 'import', 'plants.jsonl');
  t.equal(await yarn('node', 'plants-of-log.js'), '7n fern undefined\n');
});

t.test('a Node that is too old says which one is needed, before it builds', async (t) => {
  for (const release of ['14.21.3', '18.20.8', '20.10.0', '22.1.0']) {
    const path = `PATH=${dirname(await nodeOf(release))}:${process.env.PATH}`;
    const stderr = `plant-store: needs Node ^20.19 || >=22.12; this is Node ${release}\n`;
    for (const command of [['node', 'dist/server.js'], ['.config/build']]) {
      const failed: unknown = await execute(clone, 'env', path, ...command).catch(
        (error: unknown) => error,
      );
      t.match(failed, { status: 2, stdout: /^$/, stderr }, command.join(' '));
    }
  }
});
