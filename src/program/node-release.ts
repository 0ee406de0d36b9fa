import { EXIT, failWith } from './exit.js';

const OLDEST = { major: 20, minor: 19 } as const;

/** Whether this release of Node can run the program. If not, that is reported, and the exit code set. */
export function isNodeSupported(): boolean {
  const { node } = process.versions;
  const [major = 0, minor = 0] = node.split('.').map(Number);
  if (major > OLDEST.major || (major === OLDEST.major && minor >= OLDEST.minor)) return true;
  const sentence = `needs Node ${OLDEST.major}.${OLDEST.minor} or later; this is Node ${node}`;
  process.exitCode = failWith(EXIT.usage, sentence);
  return false;
}
