/* Checks each pod that the manifests describe, and the socket that systemd opens. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';
import { parseAllDocuments } from 'yaml';

import { BACKLOG } from '../../dist/program/server/bind.js';
import { readServerSettings } from '../../dist/program/settings/rules.js';
import { SETTINGS } from '../../dist/program/settings/table.js';
import { SHUTDOWN_MS } from '../../dist/program/signals.js';
import { selfSigned } from '../helpers/certificate.js';
import { TOKEN } from '../helpers/client.js';
import { block, settingsIn } from '../helpers/documents.js';
import { exactly } from '../helpers/exactly.js';

const FOLDER = 'src/program/deploy';

interface Manifest {
  readonly kind: string;
  readonly spec?: {
    readonly backoffLimit?: number;
    readonly template?: { readonly spec: Pod };
    readonly tls?: readonly { readonly hosts: readonly string[] }[];
    readonly rules?: readonly { readonly host: string }[];
    readonly policyTypes?: readonly string[];
  };
}

interface Pod {
  readonly enableServiceLinks?: boolean;
  readonly restartPolicy?: string;
  readonly terminationGracePeriodSeconds?: number;
  readonly containers: readonly {
    readonly lifecycle?: { readonly preStop: { readonly sleep: { readonly seconds: number } } };
  }[];
}

const MANIFESTS = readdirSync(FOLDER)
  .filter((name) => name.endsWith('.yml') && name.startsWith('kubernetes-'))
  .flatMap((name) => parseAllDocuments(readFileSync(join(FOLDER, name), 'utf8')))
  .map((document) => document.toJS() as Manifest);
const PODS = MANIFESTS.flatMap(({ spec }) => spec?.template?.spec ?? []);

t.test('no pod can gain rights, or change the files of its image', async (t) => {
  t.ok(PODS.length > 0);
  for (const pod of PODS) {
    t.match(pod, {
      automountServiceAccountToken: false,
      securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } },
    });
    for (const container of pod.containers)
      t.match(container, {
        securityContext: {
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: exactly('ALL') },
        },
      });
  }
});

t.test('no pod gets variables of its Service, which the program would refuse', async (t) => {
  for (const { enableServiceLinks } of PODS) t.equal(enableServiceLinks, false);
});

t.test('a Job that has failed is not run again', async (t) => {
  const jobs = MANIFESTS.filter(({ kind }) => kind === 'Job');
  t.ok(jobs.length > 0);
  for (const { spec } of jobs) {
    t.equal(spec?.backoffLimit, 0);
    t.equal(spec?.template?.spec.restartPolicy, 'Never');
  }
});

t.test('a pod has enough time for its preStop and the shutdown of the program', async (t) => {
  // The default of Kubernetes is 30 s.
  for (const { containers, terminationGracePeriodSeconds: seconds = 30 } of PODS)
    for (const { lifecycle } of containers) {
      const preStop = lifecycle?.preStop.sleep.seconds ?? 0;
      t.ok(preStop + SHUTDOWN_MS / 1_000 < seconds, `${seconds} s`);
    }
});

t.test('an Ingress serves each of its hosts over TLS', async (t) => {
  const ingresses = MANIFESTS.filter(({ kind }) => kind === 'Ingress');
  t.ok(ingresses.length > 0);
  for (const { spec } of ingresses) {
    const secured = spec?.tls?.flatMap(({ hosts }) => hosts);
    t.strictSame(
      spec?.rules?.map(({ host }) => host),
      secured,
    );
  }
});

t.test('a NetworkPolicy limits who connects to a pod, and not where it connects', async (t) => {
  const policies = MANIFESTS.filter(({ kind }) => kind === 'NetworkPolicy');
  t.ok(policies.length > 0);
  for (const { spec } of policies) t.strictSame(spec?.policyTypes, ['Ingress']);
});

const unitOf = (name: string): string => readFileSync(join(FOLDER, name), 'utf8');
const SOCKET = unitOf('plant-store.socket');

t.test('the socket of systemd has the address that the program has by default', async (t) => {
  const { PLANT_STORE_HOST: host, PLANT_STORE_PORT: port } = SETTINGS;
  const addresses = Array.from(SOCKET.matchAll(/^ListenStream=(.*)$/gm), ([, address]) => address);
  t.strictSame(addresses, [`${host.fallback}:${port.fallback}`]);
});

t.test('a file that extends the unit keeps the settings of an administrator', async (t) => {
  const folder = t.testdir({ ...selfSigned(), tokens: TOKEN, password: 'a-secret' });
  const files = ['postgres.conf', 'tls.conf'].map((name) => `plant-store.service.d/${name}`);
  const [extended = '', ...extensions] = ['plant-store.service', ...files].map(unitOf);
  // systemd reads the files in the order of their names: first the one that its `edit` creates.
  const unit = [extended, block('systemd', 'ini'), ...extensions].join('\n');
  // As in systemd, an empty value removes what was set before. UnsetEnvironment= is applied last.
  const settings = unit.split(/^Environment=$/m).at(-1) ?? '';
  const [, unset = ''] = /^UnsetEnvironment=(\w+)$/m.exec(unit) ?? [];
  const environment = { ...settingsIn(settings.replaceAll('%d', folder)), [unset]: undefined };
  const read = await readServerSettings(environment);
  t.ok(read.PLANT_STORE_DATABASE_URL);
  t.ok(read.tls);
  t.equal(read.PLANT_STORE_MONITOR_PORT, 9464);
  const [, bytes] = /=(\d+)/.exec(block('systemd', 'ini')) ?? [];
  t.equal(read.PLANT_STORE_MAX_BODY, Number(bytes));
});

t.test('the socket of systemd has the same backlog as the socket of the program', async (t) => {
  t.match(SOCKET, new RegExp(`^Backlog=${BACKLOG}$`, 'm'));
});
