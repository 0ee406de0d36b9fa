const SHAPE = /^(postgres(?:ql)?:\/\/[^@/?#]+@)([^@/?#]+)(\/[^/?#]+(?:\?[^#]*)?)$/;

/** What is wrong with the URL of a database, if it is not valid. Does not repeat it: it may hold a password. */
export function databaseUrlFault(url: string): string | undefined {
  const isValid = urlsIn(url).every((each) => URL.canParse(each));
  return isValid ? undefined : 'must be postgres://user[:password]@host[:port][,…]/database';
}

/** A valid URL as one for each host, with all that pg would otherwise take from the environment. */
export function parseDatabaseUrl(url: string): URL[] {
  return urlsIn(url).map((each) => {
    const parsed = new URL(each);
    parsed.port ||= '5432';
    parsed.password ||= ' ';
    return parsed;
  });
}

function urlsIn(url: string): string[] {
  const [, start = '', hosts = '', end = ''] = SHAPE.exec(url) ?? [];
  return hosts.split(',').map((host) => start + host + end);
}
