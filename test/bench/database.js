/** PostgreSQL, for the systems that need a database. */

import { missingForServers, query, startCluster } from '../../.test/postgres/cluster.js';

/**
 * Starts a PostgreSQL server with its default settings in a temporary folder; TMPDIR chooses the
 * disk. Returns the systems. Each system that needs a database gets a database of its own, which is
 * empty at each start.
 *
 * @param {import('./systems.js').System[]} systems
 * @param {{ teardown: (callback: () => unknown) => void }} owner
 */
export async function createDatabases(systems, owner) {
  const reason = missingForServers();
  if (reason) throw new Error(`PostgreSQL: ${reason}; --systems chooses others`);
  const cluster = await startCluster(owner);
  const [{ server_version: release }] = await cluster.sql('SHOW server_version');
  return systems.map((system) => {
    if (system.database === undefined) return system;
    const name = system.name.replaceAll('-', '_');
    const url = cluster.urlOf(name);
    return {
      ...system,
      // Debian adds the release of its package.
      title: system.title.replace('PostgreSQL', `PostgreSQL ${release.split(' ', 1)}`),
      env: { [system.database]: url },
      async prepare() {
        await cluster.sql(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
        await cluster.sql(`CREATE DATABASE ${name}`);
      },
      readIds: async () => (await query(url, 'SELECT id FROM plants')).map(({ id }) => Number(id)),
    };
  });
}
