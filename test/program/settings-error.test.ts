import t from 'tap';

import { collect, SettingsError } from '../../dist/program/settings-error.js';

t.test('collect adds the faults of settings, and nothing else, to the others', async (t) => {
  const faults = ['a: is missing'];
  t.equal(await collect(faults, Promise.resolve(1)), 1);
  const error = new SettingsError(['b: is no number', 'c: is too long']);
  await collect(faults, Promise.reject(error));
  t.strictSame(faults, ['a: is missing', 'b: is no number', 'c: is too long']);
  t.equal(error.message, 'b: is no number; c: is too long');

  const defect = new TypeError('a defect');
  await t.rejects(collect(faults, Promise.reject(defect)), defect);
  t.equal(faults.length, 3);
});
