/** The version in package.json, which is not there when the program is bundled into one file. */
export const VERSION = '1.0.0';
