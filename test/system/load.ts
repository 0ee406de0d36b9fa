import { EventEmitter, once } from 'node:events';
import { Agent as HttpAgent, request as httpRequest } from 'node:http';
import { Agent as TlsAgent, request as tlsRequest } from 'node:https';
import { text } from 'node:stream/consumers';

import { TOKEN } from '../client.js';
import { conforms } from '../conformance.js';

export interface LoadClient {
  readonly secure: boolean;
  readonly keepAlive: boolean;
}

/** Clients that each send one plant after the other. */
export interface Load {
  /** How many requests had each outcome: a status, or the code of an error. */
  readonly outcomes: ReadonlyMap<string, number>;
  /** Resolves once 100 more requests have had the status 200. */
  goesOn(): Promise<void>;
  /** Resolves once the last requests are answered. */
  stop(): Promise<void>;
}

export function startLoad(port: number, clients: readonly LoadClient[]): Load {
  const outcomes = new Map<string, number>();
  const answers = new EventEmitter();
  let isOver = false;
  const running = Promise.all(clients.map(sendPlants));

  async function sendPlants({ secure, keepAlive }: LoadClient, first: number): Promise<void> {
    const agent = secure
      ? new TlsAgent({ keepAlive, maxSockets: 1, rejectUnauthorized: false })
      : new HttpAgent({ keepAlive, maxSockets: 1 });
    for (let id = first; !isOver; id += clients.length) {
      const outcome = await sendPlant(port, secure, agent, id);
      outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
      answers.emit(outcome);
    }
    agent.destroy();
  }

  return {
    outcomes,
    async goesOn() {
      for (let n = 0; n < 100; n++) await once(answers, '200');
    },
    async stop() {
      isOver = true;
      await running;
    },
  };
}

function sendPlant(port: number, secure: boolean, agent: HttpAgent, id: number): Promise<string> {
  const headers = { Authorization: `Bearer ${TOKEN}`, 'Content-Type': 'application/json' };
  const options = { host: '127.0.0.1', port, method: 'POST', path: '/plants', agent, headers };
  return new Promise((resolve) => {
    const req = (secure ? tlsRequest : httpRequest)(options, async (res) => {
      try {
        const { statusCode: status = 0, headers } = res;
        conforms({ status, headers, body: await text(res) });
        resolve(String(status));
      } catch (error) {
        resolve(String(error));
      }
    });
    req.on('error', (error: NodeJS.ErrnoException) => resolve(String(error.code)));
    req.end(JSON.stringify({ id, name: 'fern' }));
  });
}
