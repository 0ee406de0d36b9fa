import cluster from 'node:cluster';

/*
 * Runs a command in a worker of a cluster. The command follows in argv, from the path of Node on. A worker
 * that is ended by a signal is replaced.
 */

const [, , , exec = '', ...args] = process.argv;

cluster.setupPrimary({ exec, args });
cluster.on('exit', (_worker, _code, signal: string | null) => {
  if (signal !== null) cluster.fork();
});
cluster.fork();
