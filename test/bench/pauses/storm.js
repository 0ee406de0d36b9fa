/**
 * After a line on stdin, opens many connections at once, sends a plant on each of them, and prints
 * the longest time in ms from opening a connection to the answer:
 *
 *   node storm.js PORT TOKEN CONNECTIONS FIRST_ID
 */

import { once } from 'node:events';
import { openConnection } from './connection.js';

const [port, token, connections, firstId] = process.argv.slice(2);

console.log('ready');
await once(process.stdin, 'data');
process.stdin.destroy();
const startedAt = performance.now();
let answered = 0;
for (let n = 0; n < Number(connections); n++)
  openConnection(
    { port: Number(port), token },
    {
      onConnect: (connection) => connection.send(Number(firstId) + n),
      onFailure(error) {
        throw error;
      },
      onAnswer() {
        if (++answered < Number(connections)) return;
        console.log(performance.now() - startedAt);
        process.exit();
      },
    },
  );
