/** A URL in three groups: up to the hosts, the hosts, and from the database on. */
const SHAPE = /^(postgres(?:ql)?:\/\/[^:@/?#][^@/?#]*@)([^@/?#]+)(\/[^@/?#]+(?:\?[^@#]*)?)$/;

/**
 * The parameters that a URL may have, with their values (`undefined`: any value). Other parameters
 * are refused: pg would ignore `schema`, for example, obey `options`, and let `host` and
 * `query_timeout` replace what the store has set.
 */
const PARAMETERS = new Map<string, readonly string[] | undefined>([
  ['sslmode', ['disable', 'no-verify', 'prefer', 'require', 'verify-ca', 'verify-full']],
  ['sslrootcert', undefined],
  ['sslcert', undefined],
  ['sslkey', undefined],
  ['application_name', undefined],
]);

/**
 * Returns a URL for each host. Each URL has a port, so that pg does not take the port from the
 * environment.
 *
 * @throws TypeError if the URL is not valid. The message does not contain the URL, which may hold a
 * password.
 */
export function parseDatabaseUrl(url: string): URL[] {
  const urls = urlsOf(url);
  for (const each of urls) {
    checkParameters(each.searchParams);
    each.port ||= '5432';
  }
  return urls;
}

/** The hosts and the database, without user and password: `db1:5432,db2:5432/plants`. */
export function nameOf(hosts: readonly URL[]): string {
  return hosts.map(({ host }) => host).join() + String(hosts[0]?.pathname);
}

function urlsOf(url: string): URL[] {
  const [, start = '', hosts = '', end = ''] = SHAPE.exec(url) ?? [];
  try {
    // Rejects invalid percent-encoding here: pg's own error would be less clear.
    decodeURIComponent(url);
    return hosts.split(',').map((host) => new URL(start + host + end));
  } catch {
    throw new TypeError(
      'the URL must be postgres://user[:password]@host[:port][,…]/database, user and password percent-encoded',
    );
  }
}

function checkParameters(parameters: URLSearchParams): void {
  for (const [name, value] of parameters) {
    const quoted = JSON.stringify(name);
    if (!PARAMETERS.has(name))
      throw new TypeError(
        `the URL has the parameter ${quoted}, which is none of ${[...PARAMETERS.keys()].join(', ')}`,
      );
    if (parameters.getAll(name).length > 1)
      throw new TypeError(`the URL has ${quoted} more than once`);
    if (value === '') throw new TypeError(`the URL has ${quoted} without a value`);
    const values = PARAMETERS.get(name);
    if (values && !values.includes(value))
      throw new TypeError(`the URL has ${quoted} with a value other than ${values.join(', ')}`);
  }
}
