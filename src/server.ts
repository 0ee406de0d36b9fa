#!/usr/bin/env node
import { isNodeSupported } from './program/node-release.js';

// Not a static import: an old Node would fail to load it, instead of reporting that it is too old.
if (isNodeSupported()) void import('./program/log.js').then(({ logProgram }) => logProgram());
