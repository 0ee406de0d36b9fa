import { generateKeyPairSync, sign } from 'node:crypto';

/**
 * A private key and a self-signed certificate for `localhost` (RFC 5280, RFC 8410). The certificate
 * is valid from 2000 until the beginning of `untilYear`.
 */
export function selfSigned(untilYear = 2100): { readonly key: string; readonly cert: string } {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  const ed25519 = sequence(der(0x06, Buffer.from([0x2b, 0x65, 0x70])));
  const commonName = sequence(
    der(0x06, Buffer.from([0x55, 0x04, 0x03])),
    der(0x0c, Buffer.from('localhost')),
  );
  const name = sequence(der(0x31, commonName));
  const validity = sequence(
    der(0x18, Buffer.from('20000101000000Z')),
    der(0x18, Buffer.from(`${untilYear}0101000000Z`)),
  );
  const version3 = der(0xa0, der(0x02, Buffer.from([2])));
  const serial = der(0x02, Buffer.from([1]));
  const publicKeyInfo = publicKey.export({ type: 'spki', format: 'der' });
  const content = sequence(version3, serial, ed25519, name, validity, name, publicKeyInfo);
  const signature = der(0x03, Buffer.from([0]), sign(null, content, privateKey));
  const base64 = sequence(content, ed25519, signature).toString('base64');
  return {
    key: String(privateKey.export({ type: 'pkcs8', format: 'pem' })),
    cert: `-----BEGIN CERTIFICATE-----\n${base64}\n-----END CERTIFICATE-----\n`,
  };
}

const sequence = (...parts: readonly Buffer[]): Buffer => der(0x30, ...parts);

/** The DER encoding of a value, whose parts have fewer than 65,536 bytes together. */
function der(tag: number, ...parts: readonly Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  const long = length < 256 ? [0x81, length] : [0x82, length >> 8, length & 255];
  const size = length < 128 ? [length] : long;
  return Buffer.concat([Buffer.from([tag, ...size]), content]);
}
