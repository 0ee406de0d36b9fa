import { readdirSync, readFileSync } from 'node:fs';

import t, { type Test } from 'tap';

import { resolveLimits, type PlantHandlerLimits } from '../../dist/http/limits.js';
import { protocolFailure } from '../../dist/http/protocol.js';
import type { HttpRequest } from '../../dist/http/request.js';
import { DEFAULTS } from '../../dist/postgres/store.js';
import { limitRate } from '../../dist/report.js';

const DIST = new URL('../../dist/', import.meta.url);

/** The members of the published types that name their defaults, as `file member`, each with its default. */
function documentedDefaults(): Record<string, string> {
  const files = readdirSync(DIST, { encoding: 'utf8', recursive: true });
  const types = files.filter((file) => file.endsWith('.d.ts') && !file.startsWith('program/'));
  return Object.fromEntries(
    types.flatMap((file) => {
      const text = readFileSync(new URL(file, DIST), 'utf8').replace(/\n\s+\* /g, ' ');
      return Array.from(
        text.matchAll(/Default: ([^*]+)\.\s+\*\/\s+(?:readonly )?(\w+)/g),
        (found) => [`${file.slice(0, -5)} ${found[2]}`, String(found[1]).replaceAll('`', '')],
      );
    }),
  );
}

type Check = (t: Test, documented: string) => void;

const isLimit =
  (name: keyof PlantHandlerLimits): Check =>
  (t, documented) =>
    t.equal(resolveLimits({})[name], Number(documented), name);

const isPostgresDefault =
  (name: keyof typeof DEFAULTS): Check =>
  (t, documented) =>
    t.equal(DEFAULTS[name], Number(documented), name);

const isConsole: Check = (t, documented) => {
  t.equal(documented, 'console.error');
  const shown = t.capture(console, 'error', () => undefined);
  limitRate()('a plant is refused');
  t.strictSame(shown.args(), [['plant-store: a plant is refused']]);
};

/** HTTP/1.0 would need no Host, and a version other than 1 be refused. */
const isVersion: Check = (t, documented) => {
  const failureOf = (version?: object, host?: object): unknown =>
    protocolFailure({ headers: { ...host }, ...version } as HttpRequest);
  const [named, host] = [{ httpVersion: documented }, { host: 'localhost' }];
  t.equal(failureOf(), failureOf(named), 'without Host');
  t.not(failureOf(), failureOf({ httpVersion: '1.0' }), 'without Host');
  t.equal(failureOf({}, host), failureOf(named, host));
};

/** Whoever documents a default names here what shows that the code has it. */
const CHECKS: Readonly<Record<string, Check>> = {
  'http/handler report': isConsole,
  'http/limits bodyTimeoutMs': isLimit('bodyTimeoutMs'),
  'http/limits maxBodyBytes': isLimit('maxBodyBytes'),
  'http/limits maxBufferedBytes': isLimit('maxBufferedBytes'),
  'http/request httpVersion': isVersion,
  'log/log report': isConsole,
  'postgres/store connections': isPostgresDefault('connections'),
  'postgres/store report': isConsole,
  'postgres/store timeoutMs': isPostgresDefault('timeoutMs'),
};

t.test('each default that the published types name is that of the code', async (t) => {
  const documented = documentedDefaults();
  t.strictSame(Object.keys(documented).sort(), Object.keys(CHECKS).sort());
  for (const [member, value] of Object.entries(documented))
    await t.test(member, async (t) => CHECKS[member]?.(t, value));
});
