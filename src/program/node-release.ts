import { EXIT, failWith } from './exit.js';

/**
 * Whether this release of Node can run the program. If not, that is reported, and the exit code set. Since Node
 * 20.19 and 22.12, CommonJS can `require` a module; Node 21 to 22.1 also lack `crc32` of `node:zlib`.
 */
export function isNodeSupported(): boolean {
  const { node } = process.versions;
  const [major = 0, minor = 0] = node.split('.').map(Number);
  if (major > 22 || (major === 22 && minor >= 12) || (major === 20 && minor >= 19)) return true;
  const sentence = `needs Node ^20.19 || >=22.12; this is Node ${node}`;
  process.exitCode = failWith(EXIT.usage, sentence);
  return false;
}
