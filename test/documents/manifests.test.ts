/* What is true of each pod that the manifests describe, and of the socket that systemd opens. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';
import { parseAllDocuments } from 'yaml';

import { BACKLOG } from '../../dist/program/server/bind.js';
import { exactly } from '../helpers/exactly.js';

const FOLDER = 'src/program/deploy';

interface Manifest {
  readonly kind: string;
  readonly spec?: {
    readonly backoffLimit?: number;
    readonly template?: { readonly spec: Pod };
  };
}

interface Pod {
  readonly enableServiceLinks?: boolean;
  readonly restartPolicy?: string;
  readonly containers: readonly object[];
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

t.test('as many connections wait in the socket of systemd as in that of the program', async (t) => {
  const unit = readFileSync(join(FOLDER, 'plant-store.socket'), 'utf8');
  t.match(unit, new RegExp(`^Backlog=${BACKLOG}$`, 'm'));
});
