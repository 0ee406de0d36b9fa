/**
 * Records a run of the demo as an animated SVG:
 *
 *   npm run build && node test/demo/picture.js >test/demo/demo.svg
 *
 * Each line that the demo prints is a frame. A reader who prefers no animation sees the last frame.
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const DEMO = fileURLToPath(new URL('demo.js', import.meta.url));
/** How long the last frame is shown before the animation begins again. */
const LAST_SECONDS = 4;

const frames = [{ line: 'kills 0   acknowledged 0   lost 0', at: 0 }];
const child = spawn(process.execPath, [DEMO], { stdio: ['ignore', 'pipe', 'inherit'] });
const ended = once(child, 'close');
const started = performance.now();
for await (const line of createInterface({ input: child.stdout }))
  frames.push({ line, at: (performance.now() - started) / 1_000 });
const [code] = await ended;
if (code !== 0) process.exit(1);

const seconds = frames.at(-1).at + LAST_SECONDS;
const percent = ({ at }) => `${((100 * at) / seconds).toFixed(1)}%`;

/** With `step-end`, a value holds until the next keyframe. */
function keyframes(frame, n) {
  const before = frame.at > 0 ? '0% { opacity: 0 } ' : '';
  const after = n + 1 < frames.length ? ` ${percent(frames[n + 1])} { opacity: 0 }` : '';
  return `@keyframes frame${n} { ${before}${percent(frame)} { opacity: 1 }${after} }
.frame${n} { animation-name: frame${n} }`;
}

const text = ({ line }, n) =>
  `<text class="frame frame${n}" x="20" y="58">${line.replaceAll(' ', '&#160;')}</text>`;

console.log(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 560 80" width="560" role="img">
<title>npm run demo: ${frames.at(-1).line.replaceAll(/ {2,}/g, ', ')}</title>
<style>
rect { fill: #f6f8fa; stroke: #d1d9e0 }
text { font: 15px ui-monospace, monospace; fill: #1f2328 }
.command { fill: #59636e }
.frame { opacity: 0; animation: ${seconds.toFixed(1)}s step-end infinite }
.frame:last-of-type { opacity: 1 }
${frames.map(keyframes).join('\n')}
@media (prefers-color-scheme: dark) {
  rect { fill: #151b23; stroke: #3d444d }
  text { fill: #f0f6fc }
  .command { fill: #9198a1 }
}
@media (prefers-reduced-motion: reduce) { .frame { animation: none } }
</style>
<rect x="0.5" y="0.5" width="559" height="79" rx="6"/>
<text class="command" x="20" y="32">$ npm run demo</text>
${frames.map(text).join('\n')}
</svg>`);
