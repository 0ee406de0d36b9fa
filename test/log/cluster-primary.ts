import cluster from 'node:cluster';

/*
 * Runs a command of Node, which is in argv from [2] on, in a worker of a cluster. A worker that a
 * signal has ended is replaced.
 */

const [, , , exec = '', ...args] = process.argv;

cluster.setupPrimary({ exec, args });
cluster.on('exit', (_worker, _code, signal: string | null) => {
  if (signal !== null) cluster.fork();
});
cluster.fork();
