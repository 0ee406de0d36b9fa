import { spawn } from 'node:child_process';

import type { Test } from 'tap';

import { follow } from './program.js';

/** The rest of a configuration of nginx, so that any user can run it in any folder. */
const MAIN = `daemon off; master_process off; pid nginx.pid; error_log stderr;
events {}
http {
  access_log off;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  include plant-store.conf;
}
`;

/**
 * Starts nginx with a configuration of the server, and the files that it names, until the test is
 * over.
 */
export function startNginx(
  t: Test,
  configuration: string,
  files: Record<string, string> = {},
): void {
  const cwd = t.testdir({ 'nginx.conf': MAIN, 'plant-store.conf': configuration, ...files });
  const args = ['-p', cwd, '-e', 'stderr', '-c', 'nginx.conf'];
  // Debian installs nginx in a folder that not every user has in the path.
  const env = { ...process.env, PATH: `${process.env.PATH}:/usr/sbin` };
  follow(t, spawn('nginx', args, { env }));
}
