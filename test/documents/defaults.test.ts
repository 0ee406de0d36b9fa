import { EventEmitter } from 'node:events';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { Readable } from 'node:stream';

import t, { type Test } from 'tap';

import { resolveLimits, type PlantHandlerLimits } from '../../dist/http/limits.js';
import { protocolFailure } from '../../dist/http/protocol.js';
import { DEFAULTS } from '../../dist/postgres/store.js';
import { limitRate } from '../../dist/report.js';

const DIST = new URL('../../dist/', import.meta.url);

/** The entry points of the package. */
const ENTRIES = ['index', 'postgres/index'];

const DEFAULT = /Default: ([^*]+)\.\s+\*\/\s+(?:readonly )?(\w+)/g;

/**
 * The members of the published types that name their defaults, as `file member`, each with its
 * default.
 */
function documentedDefaults(): Record<string, string> {
  const textOf = (file: string): string => readFileSync(new URL(`${file}.d.ts`, DIST), 'utf8');
  const found = ENTRIES.flatMap((entry) =>
    Array.from(textOf(entry).matchAll(/^export .*\{(.*)\} from '(.*)\.js'/gm)).flatMap(
      ([, names = '', path = '']) => {
        const file = join(dirname(entry), path);
        const text = textOf(file).replace(/\n\s+\* /g, ' ');
        const interfaces = Array.from(text.matchAll(/^export interface (\w+) [^]*?^\}/gm));
        return interfaces
          .filter(([, name = '']) => names.match(/\w+/g)?.includes(name))
          .flatMap(([body]) => Array.from(body.matchAll(DEFAULT)))
          .map(([, value = '', member]) => [`${file} ${member}`, value.replaceAll('`', '')]);
      },
    ),
  );
  return Object.fromEntries(found) as Record<string, string>;
}

type Check = (t: Test, documented: string) => void;

const expectLimit =
  (name: keyof PlantHandlerLimits): Check =>
  (t, documented) =>
    t.equal(resolveLimits({})[name], Number(documented), name);

const expectPostgresDefault =
  (name: keyof typeof DEFAULTS): Check =>
  (t, documented) =>
    t.equal(DEFAULTS[name], Number(documented), name);

const expectConsole: Check = (t, documented) => {
  t.equal(documented, 'console.error');
  const shown = t.capture(console, 'error', () => undefined);
  limitRate()('a plant is refused');
  t.strictSame(shown.args(), [['plant-store: a plant is refused']]);
};

/** A request in HTTP/1.0 would need no Host, and a major version other than 1 would be refused. */
const expectVersion: Check = (t, documented) => {
  const socket = new EventEmitter();
  const failureOf = (version?: object, host?: object): unknown =>
    protocolFailure(Object.assign(new Readable(), { headers: { ...host }, socket, ...version }));
  const [named, host] = [{ httpVersion: documented }, { host: 'localhost' }];
  t.equal(failureOf(), failureOf(named), 'without Host');
  t.not(failureOf(), failureOf({ httpVersion: '1.0' }), 'without Host');
  t.equal(failureOf({}, host), failureOf(named, host));
};

/**
 * For each documented default, a check that the code has this default. A new default needs an
 * entry.
 */
const CHECKS: Readonly<Record<string, Check>> = {
  'http/handler report': expectConsole,
  'http/limits bodyTimeoutMs': expectLimit('bodyTimeoutMs'),
  'http/limits maxBodyBytes': expectLimit('maxBodyBytes'),
  'http/limits maxBufferedBytes': expectLimit('maxBufferedBytes'),
  'http/request httpVersion': expectVersion,
  'log/log report': expectConsole,
  'postgres/store connections': expectPostgresDefault('connections'),
  'postgres/store report': expectConsole,
  'postgres/store timeoutMs': expectPostgresDefault('timeoutMs'),
};

t.test('each default that the published types document is the one in the code', async (t) => {
  const documented = documentedDefaults();
  t.strictSame(Object.keys(documented).sort(), Object.keys(CHECKS).sort());
  for (const [member, value] of Object.entries(documented))
    await t.test(member, async (t) => CHECKS[member]?.(t, value));
});
