// jest.config.cjs
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
