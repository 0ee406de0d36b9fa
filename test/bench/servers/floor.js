/** The floor: `node:http` with a constant response, which ignores the request. */

import { createServer } from 'node:http';
import { listen } from './plants.js';

const BODY = '{"name":"Boston fern","tag":"indoor"}';
const HEADERS = { 'Content-Type': 'application/json', 'Content-Length': BODY.length };

listen(
  createServer((request, response) => {
    request.on('end', () => response.writeHead(200, HEADERS).end(BODY));
    request.resume();
  }),
);
