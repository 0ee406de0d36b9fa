#!/usr/bin/env node
import { isNodeSupported } from './program/node-release.js';

// Not a static import, which an old Node would fail to load before it could say so.
if (isNodeSupported()) void import('./program/log.js').then(({ logProgram }) => logProgram());
