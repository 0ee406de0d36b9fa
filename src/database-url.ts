const SHAPE = /^(postgres(?:ql)?:\/\/[^:@/?#][^@/?#]*@)([^@/?#]+)(\/[^/?#]+(?:\?[^#]*)?)$/;

/** Returns why a URL is not valid, if so. The reason does not contain the URL, which may hold a password. */
export function databaseUrlFault(url: string): string | undefined {
  const isValid = urlsIn(url).every((each) => URL.canParse(each));
  return isValid && isPercentEncoded(url)
    ? undefined
    : 'must be postgres://user[:password]@host[:port][,…]/database';
}

/** Returns a URL for each host, with port and password in any case, so that pg takes neither from the environment. */
export function parseDatabaseUrl(url: string): URL[] {
  return urlsIn(url).map((each) => {
    const parsed = new URL(each);
    parsed.port ||= '5432';
    parsed.password ||= ' ';
    return parsed;
  });
}

function isPercentEncoded(url: string): boolean {
  try {
    decodeURIComponent(url);
    return true;
  } catch {
    return false;
  }
}

function urlsIn(url: string): string[] {
  const [, start = '', hosts = '', end = ''] = SHAPE.exec(url) ?? [];
  return hosts.split(',').map((host) => start + host + end);
}
