/* Runs the Dockerfile without Docker: each of its stages is a folder, in which its steps run. */
import {
  chmodSync,
  cpSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import t from 'tap';

import { exchange, message, TOKEN } from '../helpers/client.js';
import { folderOutside, execute } from '../helpers/command.js';
import { blocks, read, settingsIn } from '../helpers/documents.js';
import { DONE, launch, start } from '../helpers/program.js';
import { missingForServers, startCluster } from '../postgres/cluster.js';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const [, BUILD = '', FINAL = ''] = fileOf('Dockerfile').split(/^FROM .*$/m);
const DOCKERIGNORE = fileOf('Dockerfile.dockerignore').replaceAll('**/', '');
const [, WITH_POSTGRES = ''] = blocks('A container', 'sh');

/** The user that runs the program. The image of Node has the user `node`. */
const [, USER = 'root'] = /^USER (\w+)$/m.exec(FINAL) ?? [];
const UID = new Map([['node', 1000]]).get(USER) ?? 0;
const isRoot = process.getuid?.() === 0;
const AS_USER = isRoot ? ['setpriv', `--reuid=${UID}`, `--regid=${UID}`, '--clear-groups'] : [];

/** The user of the pods, whose name is a comment. */
const [, RUN_AS_USER, NAME] = /runAsUser: (\d+) # (\w+)/.exec(fileOf('kubernetes-log.yml')) ?? [];
/** What tests create in a clone. */
const CREATED = ['.tap', '.test', 'coverage'];

function fileOf(name: string): string {
  return readFileSync(join(ROOT, 'src/program/deploy', name), 'utf8');
}

t.setTimeout(1_800_000);

t.test('the image that the Dockerfile describes serves a log and a database', async (t) => {
  const folder = folderOutside(t);
  chmodSync(folder, 0o755);
  const app = join(folder, 'build');
  const image = join(folder, 'image');

  const left = [...DOCKERIGNORE.split('\n'), ...CREATED];
  cpSync(ROOT, app, { recursive: true, filter: (path) => !left.includes(basename(path)) });
  const env = ['npm_config_prefer_offline=true', 'NODE_ENV=production'];
  for (const [, step = ''] of BUILD.matchAll(/^RUN (.*)$/gm))
    await execute(app, 'env', ...env, 'sh', '-euc', step);
  for (const [, from = '', to = ''] of FINAL.matchAll(/^COPY --from=build \/app\/(\S+) (\S+)$/gm))
    cpSync(join(app, from), join(image, to), { recursive: true });
  const [, data = ''] = /^VOLUME (.*)$/m.exec(FINAL) ?? [];
  for (const [, step = ''] of FINAL.matchAll(/^RUN (.*)$/gm)) {
    const here = step.replaceAll(data, join(image, data)).replace('node:node', `${UID}:${UID}`);
    await execute(image, 'sh', '-euc', isRoot ? here : here.replace(/ && chown .*/, ''));
  }
  const [, command = '[]'] = /^CMD (.*)$/m.exec(FINAL) ?? [];
  const [, script = ''] = JSON.parse(command) as string[];

  await t.test('the log', async (t) => {
    const env = { ...settingsIn(FINAL), PLANT_STORE_TOKEN: TOKEN };
    const options = { cwd: image, env, script: join(image, script), under: AS_USER };
    const program = await start(t, options);
    t.match(program.url, '0.0.0.0');
    t.equal(program.log, join(image, data, 'plants.jsonl'));
    t.equal((await exchange(t, program.port, message())).status, 200);
    t.equal(USER, NAME);
    if (isRoot) t.equal(String(statSync(program.log).uid), RUN_AS_USER);
    t.strictSame(await program.stop('SIGTERM'), DONE);
    const [, command = ''] =
      /`node \/app\/dist\/server\.js (\w+)`/.exec(read('src/program/deploy/README.md')) ?? [];
    const repair = [...AS_USER, process.execPath, join(image, script), command];
    t.match(await execute(image, 'env', ...repair), 'no line is damaged');
  });

  await t.test('PostgreSQL', { skip: missingForServers() }, async (t) => {
    const cluster = await startCluster(t);
    const [, secrets = ''] = /--volume \S+:(\S+):ro/.exec(WITH_POSTGRES) ?? [];
    const env = settingsIn(FINAL + WITH_POSTGRES.replaceAll(secrets, join(image, secrets)));
    mkdirSync(join(image, secrets), { recursive: true });
    writeFileSync(env.PLANT_STORE_TOKEN_FILE ?? '', TOKEN);
    writeFileSync(env.PLANT_STORE_DATABASE_PASSWORD_FILE ?? '', 'a-password');
    env.PLANT_STORE_DATABASE_URL = cluster.url;
    const program = launch(t, { cwd: image, env, script: join(image, script), under: AS_USER });
    const [, port] = await program.says('stdout', /^plant-store listening on .*:(\d+)\n/);
    t.equal((await exchange(t, Number(port), message())).status, 200);
    // An upgrade in place removes these files, too. The program reads no file when it connects
    // again.
    rmSync(join(image, 'app'), { recursive: true });
    await cluster.endSessions();
    t.equal((await exchange(t, Number(port), message())).status, 200);
    program.send('SIGTERM');
    t.strictSame(await program.ended, DONE);
  });
});
