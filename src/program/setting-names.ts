/** The environment that settings are read from. */
export type Environment = Readonly<Record<string, string | undefined>>;

const PREFIX = 'PLANT_STORE_';

/** The largest number of letters in a name that may be wrong by mistake. */
const MAX_MISTAKES = 2;

/**
 * Returns a fault for each variable whose name is almost that of a setting. Others are left alone:
 * Kubernetes sets PLANT_STORE_SERVICE_HOST, for example, if a Service is named plant-store.
 */
export function misspelledNames(environment: Environment, names: readonly string[]): string[] {
  const faults: string[] = [];
  for (const name of Reflect.ownKeys(environment).map(String)) {
    if (!name.startsWith(PREFIX) || names.includes(name)) continue;
    if (isServiceLink(name, environment[name])) continue;
    const meant =
      names.find((each) => isAlmost(name, each, 1)) ??
      names.find((each) => isAlmost(name, each, MAX_MISTAKES));
    if (meant !== undefined) faults.push(`${name}: is not a setting; did you mean ${meant}?`);
  }
  return faults;
}

/**
 * Whether Kubernetes has set a variable, as it sets PLANT_STORE_PORT to `tcp://10.0.0.1:8080` in all
 * containers beside a Service that is named plant-store.
 */
export function isServiceLink(name: string, value = ''): boolean {
  return name.endsWith('_PORT') && /^(?:tcp|udp|sctp):\/\//.test(value);
}

/** Whether letters that are added, left out, replaced or swapped turn one name into the other. */
function isAlmost(one: string, other: string, mistakes: number): boolean {
  let same = 0;
  while (same < one.length && one[same] === other[same]) same++;
  const [a, b] = [one.slice(same), other.slice(same)];
  if (a === b) return true;
  if (mistakes === 0) return false;
  const isSwapped = b.length > 1 && a.startsWith(b.charAt(1) + b.charAt(0));
  return (
    isAlmost(a.slice(1), b, mistakes - 1) ||
    isAlmost(a, b.slice(1), mistakes - 1) ||
    isAlmost(a.slice(1), b.slice(1), mistakes - 1) ||
    (isSwapped && isAlmost(a.slice(2), b.slice(2), mistakes - 1))
  );
}
