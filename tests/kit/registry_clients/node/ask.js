// Asks a registry with @kafkajs/confluent-schema-registry: ask.js REGISTRY TOPIC FRAME (in hex). Prints what it got as JSON.
const { SchemaRegistry } = require('@kafkajs/confluent-schema-registry');

async function main([host, topic, frame]) {
  const registry = new SchemaRegistry({ host });
  const bytes = Buffer.from(frame, 'hex');
  const row = await registry.decode(bytes);
  const subject = `${topic}-value`;
  const latest = await registry.getLatestSchemaId(subject);
  const first = await registry.getRegistryId(subject, 1);
  console.log(JSON.stringify({ row, latest, first }));
}

main(process.argv.slice(2)).catch((error) => {
  console.error(`${error}`);
  process.exit(1);
});
