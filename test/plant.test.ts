import t from 'tap';

import { NewPlantSchema, PlantSchema } from '../dist/plant.js';

t.test('the schemas are those of the interface', async (t) => {
  const { name, tag } = PlantSchema.properties;
  t.match(PlantSchema, { type: 'object', properties: { name: { type: 'string' } } });
  t.match(tag, { type: 'string' });
  t.strictSame(PlantSchema.required, ['name']);
  t.strictSame(Object.keys(PlantSchema.properties), ['name', 'tag']);
  t.match(NewPlantSchema, {
    type: 'object',
    properties: { id: { type: 'integer', format: 'int64' } },
  });
  t.strictSame(NewPlantSchema.required, ['id', 'name']);
  t.strictSame(Object.keys(NewPlantSchema.properties), ['id', 'name', 'tag']);
  t.strictSame([NewPlantSchema.properties.name, NewPlantSchema.properties.tag], [name, tag]);
});
