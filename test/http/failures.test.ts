import t from 'tap';

import { Failure, failures } from '../../dist/http/failures.js';
import { PlantFault } from '../../dist/plant-json.js';
import { SETTINGS } from '../../dist/program/settings/table.js';
import { codeSpans, rows } from '../readme.js';

/** Samples of the failures that depend on the request. */
const SAMPLES: Readonly<Record<string, readonly Failure[]>> = {
  notPlant: (['json', 'plant'] as const).map((kind) =>
    failures.notPlant(new PlantFault(kind, 'body: must be a plant')),
  ),
  tooLarge: [failures.tooLarge(1)],
};

const all = Object.entries(failures).flatMap(([name, failure]) => {
  const samples = failure instanceof Failure ? [failure] : SAMPLES[name];
  if (!samples) throw new Error(`there is no sample of ${name}`);
  return samples;
});

t.test('the table of answers lists the numbers and the headers of every failure', async (t) => {
  const shown = rows('Answers').map(([, status = '', error = '']) => {
    const [code = ''] = status.split(',');
    return [code, error, ...codeSpans(status).map((header) => header.split(':')[0])].join(' ');
  });
  const given = all.map(({ status, error, headers }) => {
    const names = Object.keys(headers).filter((header) => header !== 'Accept-Encoding');
    return [status, error, ...names].join(' ');
  });
  t.strictSame([...new Set(shown)].toSorted(), [...new Set(given)].toSorted());
});

t.test('a message names only settings that exist', async (t) => {
  const names = all.flatMap(({ message }) => message.match(/PLANT_STORE_\w+/g) ?? []);
  t.ok(names.length > 0);
  for (const name of names) t.ok(name in SETTINGS, name);
});
