// Names the Node that is needed before anything is built; `isNodeSupported` does so once it is compiled.
const { engines } = require('../package.json');
const { node } = process.versions;
const [major, minor] = node.split('.').map(Number);
if (major < 20 || (major === 20 && minor < 19) || major === 21 || (major === 22 && minor < 12)) {
  console.error(`plant-store: needs Node ${engines.node}; this is Node ${node}`);
  process.exitCode = 2;
}
