/**
 * The longest time for which a body of the default maximum size may block the event loop, in ms.
 */
export const MAX_BLOCK_MS = 200;
