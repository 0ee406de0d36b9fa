import { connect as connectTo, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { connect as connectSecurely, type TLSSocket } from 'node:tls';

/** A client that decides which bytes share a TLS record. */
export interface RecordClient {
  /** The connection under TLS. */
  readonly transport: Socket;
  readonly socket: TLSSocket;
  /** Sends each part in a record of its own, all of them at once. */
  send(parts: readonly Buffer[]): Promise<void>;
}

export async function connectWithRecords(port: number): Promise<RecordClient> {
  const transport = connectTo(port, '127.0.0.1');
  let held: Buffer[] | undefined;
  const between = new Duplex({
    read: () => undefined,
    write(record: Buffer, _, done) {
      if (held) held.push(record);
      else transport.write(record);
      done();
    },
  });
  transport.on('data', (data) => between.push(data)).on('error', () => undefined);
  transport.on('close', () => between.push(null));
  const socket = connectSecurely({ socket: between, rejectUnauthorized: false });
  await new Promise((resolve) => socket.once('secureConnect', resolve));
  return {
    transport,
    socket,
    async send(parts) {
      const records = (held = []);
      for (const part of parts) await new Promise((resolve) => socket.write(part, resolve));
      held = undefined;
      transport.write(Buffer.concat(records));
    },
  };
}
