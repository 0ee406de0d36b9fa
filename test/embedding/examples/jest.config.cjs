// jest.config.cjs
// Compiles the package, too. `@swc/jest`, or ts-jest with `allowJs`, can do so in place of Babel.
module.exports = {
  transform: {
    '\\.m?[jt]s$': [
      'babel-jest',
      {
        presets: [
          ['@babel/preset-env', { targets: { node: 'current' } }],
          '@babel/preset-typescript',
        ],
      },
    ],
  },
  transformIgnorePatterns: ['/node_modules/(?!(plant-store|typebox)/)'],
};
