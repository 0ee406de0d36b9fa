/* The clients of the document try again, and end with the status and the `error` of a refusal. */
import { execFile } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setImmediate } from 'node:timers/promises';
import { inspect, promisify } from 'node:util';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

import t, { type Test } from 'tap';

import { PlantStoreError } from '../../dist/index.js';
import { fetchWithRetries } from '../embedding/examples/retry.js';
import { selfSigned } from '../helpers/certificate.js';
import { exchange, message } from '../helpers/client.js';
import { folderOutside } from '../helpers/command.js';
import { block, read } from '../helpers/documents.js';
import { missing } from '../helpers/needs.js';
import { startNginx } from '../helpers/nginx.js';
import { expireAtOnce, freePort, listen, serve } from '../helpers/service.js';
import { storeOf } from '../helpers/stores.js';

const PLANT = '{"id":7,"name":"Boston fern","tag":"indoor"}';
const STORED = '{"name":"Boston fern","tag":"indoor"}';
const TOKEN = 'a-secret-token';
const SOURCES = new URL('../../test/embedding/examples/', import.meta.url);
const PYTHON = new URL('create_plant.py', SOURCES);
const NGINX = new URL('nginx-page.conf', SOURCES);
const RETRY = new URL('../embedding/examples/retry.js', import.meta.url);

/** The variable with which the client of a file trusts a private authority. */
const VARIABLES: Readonly<Record<string, string>> = {
  'create_plant.py': 'SSL_CERT_FILE',
  'retry.ts': 'NODE_EXTRA_CA_CERTS',
};

/**
 * Sends a plant to a URL with a token. Resolves to the output of the client, or rejects with its
 * error.
 */
type Send = (t: Test, url: string, token?: string, plant?: string) => Promise<string>;

async function run(file: string, ...args: readonly string[]): Promise<string> {
  return (await promisify(execFile)(file, args)).stdout;
}

const sendWithCurl: Send = (_, url, token = TOKEN) => {
  const [, command = ''] = /^(curl[^]*)$/m.exec(block('Clients', 'sh')) ?? [];
  const sent = command.replace('http://127.0.0.1:8080/plants', url).replace(TOKEN, token);
  return run('sh', '-c', sent);
};

const sendWithPython: Send = (t, url, token = TOKEN, plant = PLANT) => {
  const code = `${readFileSync(PYTHON, 'utf8')}
import sys
time.sleep = print
try:
    print(json.dumps(create_plant(json.loads(sys.argv[1]), *sys.argv[2:]), separators=(',', ':')))
except Refused as refused:
    sys.exit(f'Error: {refused} ({refused.error})')
`;
  const path = join(t.testdir({ 'client.py': code }), 'client.py');
  return run('python3', path, plant, token, url);
};

/**
 * Runs a program that sends the plant `body` to `url` with `headers` and `fetchWithRetries`, and
 * prints `text`, the body of the answer with `status`. The program prints pauses instead of waiting.
 */
function sendWithFetch(program: string): Send {
  return (t, url, token = TOKEN, plant = PLANT) => {
    const code = `
      const setTimeout = (onExpiry, ms) => {
        if (ms === 15_000) return globalThis.setTimeout(onExpiry, ms);
        console.log(ms / 1_000);
        onExpiry();
      };
      ${readFileSync(RETRY, 'utf8')}
      const [body, token, url] = process.argv.slice(2);
      const headers = { Authorization: 'Bearer ' + token, 'Content-Type': 'application/json' };
      ${program}
    `;
    const path = join(t.testdir({ 'client.mjs': code }), 'client.mjs');
    return run(process.execPath, path, plant, token, url);
  };
}

const sendWithRequest = sendWithFetch(`
  const response = await fetchWithRetries(new Request(url, { method: 'POST', headers, body }));
  const text = await response.text();
  if (response.status === 200) console.log(text);
  else {
    const { error } = text.startsWith('{') ? JSON.parse(text) : {};
    throw new Error(response.status + ' ' + text + ' (' + error + ')');
  }
`);

const sendWithGeneratedClient = sendWithFetch(`
  import createClient from 'openapi-fetch';
  const baseUrl = url.replace('/plants', '');
  const client = createClient({ baseUrl, headers, fetch: fetchWithRetries });
  const { data, error, response } = await client.POST('/plants', { body, bodySerializer: String });
  if (data) console.log(JSON.stringify(data));
  else {
    const text = typeof error === 'string' ? error : JSON.stringify(error);
    throw new Error(response.status + ' ' + text + ' (' + error?.error + ')');
  }
`);

/** Clients that print their pauses, in seconds, instead of waiting, and at last the answer. */
const CLIENTS: Readonly<Record<string, readonly [need: string, send: Send]>> = {
  Python: ['python3', sendWithPython],
  fetchWithRetries: ['true', sendWithRequest],
  'openapi-fetch': ['true', sendWithGeneratedClient],
};

for (const [name, [need, send]] of Object.entries({
  curl: ['curl', sendWithCurl] as const,
  ...CLIENTS,
}))
  t.test(`${name}: a plant is sent again after a 503`, { skip: missing(need) }, async (t) => {
    let attempts = 0;
    const store = storeOf(async () => {
      if (++attempts === 1) throw new PlantStoreError('unavailable', 'the disk is full');
      return 'created';
    });
    const { port } = await serve(t, { store });
    const url = `http://127.0.0.1:${port}/plants`;
    // What precedes the answer is a pause or, with curl, the body of the 503.
    t.ok((await send(t, url)).trimEnd().endsWith(STORED));
    t.equal(attempts, 2);
    const refused = await send(t, url, 'wrong').catch(inspect);
    t.match(refused, 'the bearer token is not valid', 'it is not sent again');
  });

/** An answer of a proxy: its body is a page, not JSON. */
function page(status: number, header = ''): string {
  const html = `<html><h1>${status}</h1></html>`;
  return `HTTP/1.1 ${status} Page\r\n${header}Content-Length: ${html.length}\r\n\r\n${html}`;
}

/** The answer of Vite while the service is stopped. */
const EMPTY = 'HTTP/1.1 502 Bad Gateway\r\n\r\n';

/** A 200 with a body. */
function okWith(body: string): string {
  const type = 'Content-Type: application/json';
  return `HTTP/1.1 200 OK\r\n${type}\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
}

const OK = okWith(STORED);

/**
 * Answers each request with the next answer, which may be a part of one, and closes its connection.
 * Resolves to the URL of the plants.
 */
async function answering(t: Test, answers: readonly string[]): Promise<string> {
  const rest = answers.values();
  const server = createServer(async (req) => {
    t.strictSame(JSON.parse(await text(req)), JSON.parse(PLANT), 'the same request');
    req.socket.end(String(rest.next().value), 'latin1');
  });
  return `http://127.0.0.1:${await listen(t, server)}/plants`;
}

/** Answers, what the client prints, which is its pauses and the answer, and its error. */
const CASES: Readonly<
  Record<string, readonly [answers: readonly string[], printed: string, error?: RegExp]>
> = {
  'is sent again after pages with status 408, 429, 500, 502 and 503': [
    [...[408, 429, 500, 502, 503].map((status) => page(status)), OK],
    `1 2 4 8 16 ${STORED}`,
  ],
  'is sent again after a page with status 504': [[page(504), OK], `1 ${STORED}`],
  'is sent again after a 502 with an empty body': [[EMPTY, OK], `1 ${STORED}`],
  'is sent again after Retry-After, or later': [
    [page(503, 'Retry-After: 7\r\n'), page(503), page(503, 'Retry-After: 1\r\n'), OK],
    `7 2 4 ${STORED}`,
  ],
  'is sent again after at most 60 s': [
    [page(503, 'Retry-After: 60\r\n'), page(429, 'Retry-After: 3000000\r\n'), OK],
    `60 60 ${STORED}`,
  ],
  'is sent again after a Retry-After that is a date': [
    [page(503, 'Retry-After: Fri, 31 Dec 1999 23:59:59 GMT\r\n'), OK],
    `1 ${STORED}`,
  ],
  'is sent again without an answer': [['', OK], `1 ${STORED}`],
  'is sent again after an answer that is cut off': [
    [OK.slice(0, 10), OK.slice(0, 40), OK.slice(0, -1), page(503).slice(0, -1), OK],
    `1 2 4 8 ${STORED}`,
  ],
  'is sent again after an answer with a header line that is too long': [
    [OK.replace('\r\n', `\r\nX: ${'x'.repeat(70_000)}\r\n`), OK],
    `1 ${STORED}`,
  ],
  'is sent again after a 200 of a proxy, which is no plant': [
    [page(200), ...['', '{}', '[]', 'null'].map(okWith), OK],
    `1 2 4 8 16 ${STORED}`,
  ],
  'is not stored if every answer is a 200 of a proxy': [
    Array.from({ length: 6 }, () => page(200)),
    '1 2 4 8 16',
    /Error: (?:the plant may .* later: 200 <html>|Unexpected token .*<)/,
  ],
  'is not sent again after a page with another status': [
    [page(413)],
    '',
    /Error: 413 <html><h1>413<\/h1><\/html> \((?:None|undefined)\)/,
  ],
  'is not sent to the target of a redirect, whose 200 is no plant': [
    [page(302, 'Location: /login\r\n'), OK],
    '',
    /Error: 302 <html><h1>302<\/h1><\/html>/,
  ],
  'is sent six times, without a pause after the last': [
    [...Array.from({ length: 5 }, () => page(503)), EMPTY],
    '1 2 4 8 16',
    /Error: (?:the plant may have been stored, send it again later: )?502 /,
  ],
};

t.test('the document names the statuses and the limits of its clients', (t) => {
  const document = read('src/http/README.md').replaceAll('\n', ' ');
  const [, listed = ''] = /After ([\d, or]+), or without a complete answer/.exec(document) ?? [];
  const statuses = listed.replace(' or', ',');
  t.match(statuses, /^408, .* 504$/);
  const [, most = ''] = /`Retry-After` seconds, up to (\d+)\./.exec(document) ?? [];
  t.match(
    document,
    /Give each attempt 15 seconds\. After six attempts, pause, and send the same plant later\./,
  );
  const retry = readFileSync(new URL('retry.ts', SOURCES), 'utf8');
  const python = readFileSync(PYTHON, 'utf8');
  const expected = {
    [retry]: [`[${statuses}]`, `Math.min(after, ${most})`, 'attempt === 6', '15_000'],
  };
  expected[python] = [`(200, ${statuses})`, `min(int(after), ${most})`, 'range(6)', 'timeout=15'];
  for (const [source, parts] of Object.entries(expected))
    for (const part of parts) t.ok(source.includes(part), part);
  t.end();
});

t.test('curl: a redirect is not followed, and fails', { skip: missing('curl') }, async (t) => {
  const url = await answering(t, ['HTTP/1.1 302 Found\r\nLocation: /login\r\n\r\n', OK]);
  await t.rejects(sendWithCurl(t, url), { code: 47, stdout: '' });
});

/** What a client prints to stdout, in one line, and to stderr. */
async function outcome(sent: Promise<string>): Promise<Record<'printed' | 'error', string>> {
  const { stdout, stderr } = await sent.then(
    (stdout) => ({ stdout, stderr: '' }),
    (failure: unknown) => failure as { stdout: string; stderr: string },
  );
  return { printed: stdout.trim().replaceAll('\n', ' '), error: stderr };
}

for (const [name, [need, send]] of Object.entries(CLIENTS)) {
  const skip = missing(need);
  for (const [promise, [answers, printed, error = /^$/]] of Object.entries(CASES))
    t.test(`${name}: a plant ${promise}`, { skip }, async (t) => {
      const sent = await outcome(send(t, await answering(t, answers)));
      t.equal(sent.printed, printed);
      t.match(sent.error, error);
    });

  t.test(`${name}: a plant is sent six times if the service is stopped`, { skip }, async (t) => {
    const { printed, error } = await outcome(
      send(t, `http://127.0.0.1:${await freePort()}/plants`),
    );
    t.equal(printed, '1 2 4 8 16');
    t.match(error, /Error: (?:the plant may have been stored|fetch failed)/);
    t.match(error, /Connection refused|ECONNREFUSED/, 'the last error is named');
  });

  t.test(`${name}: a conflict is not sent again, and has its error`, { skip }, async (t) => {
    const { port, log } = await serve(t);
    await log.add({ id: 7n, name: 'ivy' });
    const { printed, error } = await outcome(send(t, `http://127.0.0.1:${port}/plants`));
    t.equal(printed, '');
    t.match(error, /Error: 400 {"error":409,.*} \(409\)/);
  });

  t.test(`${name}: an id beyond 2^53 stays exact when it is sent again`, { skip }, async (t) => {
    const ids: bigint[] = [];
    const store = storeOf(async ({ id }) => {
      if (ids.push(id) === 1) throw new PlantStoreError('unavailable', 'the disk is full');
      return 'created';
    });
    const { port } = await serve(t, { store });
    const id = 2n ** 63n - 1n;
    const sent = send(t, `http://127.0.0.1:${port}/plants`, TOKEN, PLANT.replace('7', String(id)));
    t.equal(await sent, `1\n${STORED}\n`);
    t.strictSame(ids, [id, id]);
  });

  t.test(`${name}: a plant is sent once if the certificate is refused`, { skip }, async (t) => {
    const url = `https://127.0.0.1:${await listen(t, createTlsServer(selfSigned()))}/plants`;
    const { printed, error } = await outcome(send(t, url));
    t.equal(printed, '');
    t.match(error, /self.signed/i);
  });

  t.test(`${name}: an invalid URL or token is refused without a pause`, { skip }, async (t) => {
    const url = await answering(t, []);
    for (const [to, token] of [
      [url.replace('/plants', 'x/plants'), TOKEN],
      [url, `${TOKEN}\nX: y`],
    ] as const) {
      const { printed, error } = await outcome(send(t, to, token));
      t.equal(printed, '');
      t.match(error, /invalid url|nonnumeric port|invalid header value/i);
    }
  });
}

/**
 * Answers every request over TLS as if its plant were stored. Resolves to the URL of the plants, and
 * to the file of the certificate, which has additional extensions.
 */
async function serveWithCertificate(
  t: Test,
  ...extensions: readonly string[]
): Promise<{ readonly ca: string; readonly url: string }> {
  const folder = folderOutside(t);
  const [ca, keyFile] = [join(folder, 'ca.pem'), join(folder, 'key.pem')];
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
  const added = ['subjectAltName=IP:127.0.0.1', ...extensions].flatMap((each) => ['-addext', each]);
  const names = ['-subj', '/CN=127.0.0.1', ...added];
  await run('openssl', 'req', '-x509', ...key, '-keyout', keyFile, '-out', ca, ...names);
  const server = createTlsServer({ key: readFileSync(keyFile), cert: readFileSync(ca) });
  server.on('request', (_, res) => res.setHeader('Content-Type', 'application/json').end(STORED));
  return { ca, url: `https://127.0.0.1:${await listen(t, server)}/plants` };
}

/** Lets the client of a file trust a private authority until the test is over. */
function trust(t: Test, file: string, ca: string): void {
  const variable = VARIABLES[file];
  if (variable === undefined) return;
  t.match(readFileSync(new URL(file, SOURCES), 'utf8'), `${variable}=ca.pem`);
  process.env[variable] = ca;
  t.teardown(() => Reflect.deleteProperty(process.env, variable));
}

t.test(
  'a private authority is trusted with the documented settings',
  { skip: missing('openssl', 'curl', 'python3') },
  async (t) => {
    const { ca, url } = await serveWithCertificate(t);
    const setting = /`(--cacert) ca\.pem`/.exec(read('src/http/README.md'))?.[1];
    const withCurl: Send = (t, url) => sendWithCurl(t, `${url} ${setting} ${ca}`);
    for (const [file, send] of Object.entries({
      'README.md': withCurl,
      'create_plant.py': sendWithPython,
      'retry.ts': sendWithRequest,
    })) {
      trust(t, file, ca);
      t.equal((await send(t, url)).trim(), STORED, file);
    }
  },
);

t.test(
  'a plant is sent once if the certificate is for another purpose',
  { skip: missing('openssl', 'python3') },
  async (t) => {
    const { ca, url } = await serveWithCertificate(t, 'extendedKeyUsage=clientAuth');
    for (const [file, send] of Object.entries({
      'create_plant.py': sendWithPython,
      'retry.ts': sendWithRequest,
    })) {
      trust(t, file, ca);
      const { printed, error } = await outcome(send(t, url));
      t.equal(printed, '', file);
      t.match(error, /unsuitable certificate purpose/, file);
    }
  },
);

t.test(
  'create_plant.py: the proxy of the environment is used, except for the hosts of no_proxy',
  { skip: missing('python3') },
  async (t) => {
    const { port } = await serve(t);
    const variables = { http_proxy: `http://127.0.0.1:${await freePort()}`, no_proxy: '' };
    t.teardown(() => {
      for (const variable of Object.keys(variables)) Reflect.deleteProperty(process.env, variable);
    });
    const send = () => outcome(sendWithPython(t, `http://127.0.0.1:${port}/plants`));
    Object.assign(process.env, variables);
    t.match((await send()).error, /Connection refused/);
    process.env.no_proxy = '127.0.0.1';
    t.equal((await send()).printed, STORED);
  },
);

/** Collects garbage until a collection can hardly find any. */
async function collectGarbage(): Promise<void> {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  for (let collections = 0; collections < 5; collections++) {
    collect();
    await setImmediate();
  }
}

/**
 * Sends requests at the same time to a server that does not answer the first attempt of any. Once
 * all have arrived, calls `onHanging`. Resolves to what `fetchWithRetries` has done with each.
 */
async function sendToHanging(
  t: Test,
  onHanging: () => void,
  signal?: AbortSignal,
): Promise<readonly PromiseSettledResult<Response>[]> {
  const count = 6;
  let attempts = 0;
  const server = createServer(async (_, res) => {
    attempts++;
    if (attempts > count) res.end(STORED);
    if (attempts !== count) return;
    // A signal that only `fetch` refers to would be garbage.
    await collectGarbage();
    onHanging();
  });
  const url = `http://127.0.0.1:${await listen(t, server)}/plants`;
  const init: RequestInit = { method: 'POST', body: PLANT, ...(signal && { signal }) };
  const sent = Array.from({ length: count }, () => fetchWithRetries(new Request(url, init)));
  return Promise.allSettled(sent);
}

t.test('fetchWithRetries: an attempt ends after 15 s', async (t) => {
  const pauses = expireAtOnce(t, 1_000);
  const { setTimeout, clearTimeout } = globalThis;
  const limits = new Map<unknown, () => void>();
  t.intercept(globalThis, 'setTimeout', {
    value: (onExpiry: () => void, ms: number) => {
      const timer = setTimeout(onExpiry, ms);
      if (ms === 15_000) limits.set(timer, onExpiry);
      return timer;
    },
  });
  t.intercept(globalThis, 'clearTimeout', {
    value: (timer: NodeJS.Timeout) => {
      limits.delete(timer);
      clearTimeout(timer);
    },
  });
  const expired: number[] = [];
  const outcomes = await sendToHanging(t, () => {
    expired.push(limits.size);
    for (const onExpiry of limits.values()) onExpiry();
  });
  for (const outcome of outcomes) t.match(outcome, { value: { status: 200 } });
  t.strictSame(expired, [6]);
  t.equal(pauses(), 6);
  t.equal(limits.size, 0, 'no timer keeps the process');
});

t.test('fetchWithRetries: a request that its caller aborts is not sent again', async (t) => {
  const pauses = expireAtOnce(t, 1_000);
  const caller = new AbortController();
  const outcomes = await sendToHanging(t, () => caller.abort(), caller.signal);
  for (const outcome of outcomes) t.match(outcome, { reason: { name: 'AbortError' } });
  t.equal(pauses(), 0);
});

t.test('fetchWithRetries: an abort ends a pause', async (t) => {
  const caller = new AbortController();
  const pauses = new Set<NodeJS.Timeout>();
  const { setTimeout, clearTimeout } = globalThis;
  t.intercept(globalThis, 'setTimeout', {
    value: (onExpiry: () => void, ms: number) => {
      const timer = setTimeout(onExpiry, ms);
      if (ms === 60_000) {
        pauses.add(timer);
        void collectGarbage().then(() => caller.abort());
      }
      return timer;
    },
  });
  t.intercept(globalThis, 'clearTimeout', {
    value: (timer: NodeJS.Timeout) => {
      pauses.delete(timer);
      clearTimeout(timer);
    },
  });
  const url = await answering(t, [page(503, 'Retry-After: 60\r\n')]);
  const request = new Request(url, { method: 'POST', body: PLANT, signal: caller.signal });
  await t.rejects(fetchWithRetries(request), { name: 'AbortError' });
  t.equal(pauses.size, 0, 'no timer keeps the process');
});

t.test('fetchWithRetries: a request that its caller has aborted is not sent', async (t) => {
  const url = await answering(t, []);
  const request = new Request(url, { method: 'POST', body: PLANT, signal: AbortSignal.abort() });
  await t.rejects(fetchWithRetries(request), { name: 'AbortError' });
});

t.test('a page that Vite serves sends plants without a token', async (t) => {
  const { port } = await serve(t);
  const folder = t.testdir({ page: {}, 'plant-store': { data: {} } });
  const cwd = process.cwd();
  t.teardown(() => process.chdir(cwd));
  process.chdir(join(folder, 'page'));
  const { default: configure } = await import('../embedding/examples/vite.config.js');
  // Only the server for development needs the token.
  t.strictSame(configure({ command: 'build', mode: 'production' }), {});
  t.strictSame(configure({ command: 'serve', mode: 'test' }), {});
  const development = { command: 'serve', mode: 'development' };
  t.throws(() => configure(development), { code: 'ENOENT', path: '../plant-store/data/token' });
  writeFileSync('../plant-store/data/token', `${TOKEN}\nanother\n`);
  const proxy = configure(development).server?.proxy['^/plants$'];
  t.match(proxy, { target: 'http://127.0.0.1:8080' });
  t.match(await exchange(t, port, message({ headers: proxy?.headers ?? {} })), { status: 200 });
});

t.test(
  'pages behind nginx send plants without a token, if the user has logged in',
  { skip: missing('nginx') },
  async (t) => {
    const { port: service } = await serve(t);
    const application = createServer(({ method, url, headers }, res) => {
      if (url !== '/session') res.end(`application: ${method} ${url}`);
      else if (headers['content-length'] !== undefined) res.writeHead(500).end();
      else res.writeHead(headers.cookie === 'gardener=1' ? 200 : 401).end();
    });
    const [port, securePort] = await Promise.all([freePort(), freePort()]);
    const { key, cert } = selfSigned();
    const configuration = readFileSync(NGINX, 'utf8')
      .replaceAll('127.0.0.1:3000', `127.0.0.1:${await listen(t, application)}`)
      .replace('127.0.0.1:8080', `127.0.0.1:${service}`)
      .replace('listen 443', `listen ${port}; listen ${securePort}`)
      .replaceAll('/etc/ssl/', '');
    startNginx(t, configuration, { 'plants.pem': cert, 'plants.key': key });
    const url = `http://127.0.0.1:${port}`;
    const get = async (path: string): Promise<string> => (await fetch(url + path)).text();
    // Until nginx listens, connections are refused.
    while ((await get('/').catch(() => '')) === '') await setImmediate();
    t.equal(await get('/garden'), 'application: GET /garden');
    t.match(await get('/session'), /404 Not Found/);

    const json = { 'Content-Type': 'application/json' };
    const post = (headers: Record<string, string>): Promise<Response> =>
      fetch(`${url}/plants`, { method: 'POST', headers: { ...json, ...headers }, body: PLANT });
    const user = { Cookie: 'gardener=1' };
    t.match(await post({}), { status: 401 });
    t.match(await post({ Authorization: `Bearer ${TOKEN}` }), { status: 401 });
    t.equal(await (await post(user)).text(), STORED);
    t.equal(await (await post({ ...user, Authorization: 'Bearer x' })).text(), STORED);
    t.match(await post({ ...user, 'Content-Type': 'text/plain' }), { status: 400 });
    const preflight = await fetch(`${url}/plants`, { method: 'OPTIONS' });
    t.match(preflight, { status: 401 });
    t.equal(preflight.headers.get('Access-Control-Allow-Origin'), null);
  },
);
