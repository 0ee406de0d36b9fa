import { existsSync, readFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';

const IMPORT = /^(?:import|export)\b[^;']*?'(\.[^']+)\.js';/gm;

/** The modules that a module imports by relative paths, also those of which it uses types alone. */
function importsOf(file) {
  const imports = readFileSync(file, 'utf8').matchAll(IMPORT);
  return [...imports].map(([, path]) => resolve(dirname(file), `${path}.ts`)).filter(existsSync);
}

/** The way from a module back to itself, if there is one. */
function cycleOf(file) {
  const ways = [[file]];
  const visited = new Set();
  for (const way of ways) {
    for (const imported of importsOf(way.at(-1))) {
      if (imported === file) return [...way, file];
      if (!visited.has(imported)) ways.push([...way, imported]);
      visited.add(imported);
    }
  }
  return undefined;
}

/** An ESLint rule: no module imports itself by way of others, type-only imports included. */
export default {
  create(context) {
    return {
      Program(node) {
        const cycle = cycleOf(context.filename);
        if (cycle) context.report({ node, message: `import cycle: ${cycle.join(' -> ')}` });
      },
    };
  },
};
