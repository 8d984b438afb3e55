// Prints the rows of a table, kept from a topic of `format: avro`, and fails if a record is missing.
//
//     npm install
//     node subscriber.js localhost:9092 http://localhost:8081 public.shop.orders

import { randomUUID } from 'node:crypto'
import { SchemaRegistry, SchemaType } from '@kafkajs/confluent-schema-registry'
import avro from 'avsc'
import { Kafka, logLevel } from 'kafkajs'

const [bootstrap, host, topic] = process.argv.slice(2)
// Longs become BigInts, as avsc documents it. With numbers it fails at a BIGINT above 2^53.
const long = avro.types.LongType.__with({
  fromBuffer: (bytes) => bytes.readBigInt64LE(),
  toBuffer: (value) => Buffer.from(BigInt64Array.of(value).buffer),
  fromJSON: BigInt, toJSON: Number,
  isValid: (value) => typeof value === 'bigint',
  compare: (a, b) => (a < b ? -1 : Number(a > b)),
})
const typeHook = (schema) => (schema === 'long' || schema.type === 'long' ? long : undefined)
const registry = new SchemaRegistry({ host }, { [SchemaType.AVRO]: { typeHook } })
const json = (row) => JSON.stringify(row, (_, value) => (typeof value === 'bigint' ? String(value) : value))

const kafka = new Kafka({ brokers: bootstrap.split(','), logLevel: logLevel.NOTHING })
const admin = kafka.admin()
await admin.connect()
const offsets = await admin.fetchTopicOffsets(topic)
const ends = new Map(offsets.filter((each) => each.low !== each.high).map((each) => [each.partition, BigInt(each.high)]))
await admin.disconnect()
const rows = new Map(), counters = new Map() // counters: the last n of each partition
let records = 0

async function read({ partition, message }) {
  if (!(BigInt(message.offset) < ends.get(partition))) return
  const n = Number(message.headers.n)
  const last = counters.get(partition) ?? n - 1
  if (n !== last + 1) throw new Error(`partition ${partition}: n is ${n} after ${last}`)
  counters.set(partition, n)
  records += 1
  const key = json(await registry.decode(message.key))
  const change = message.value && (await registry.decode(message.value)) // null: a tombstone
  if (change?.after) rows.set(key, change.after)
  else rows.delete(key)
}

const consumer = kafka.consumer({ groupId: `example-${randomUUID()}` }) // reads committed records only
await consumer.connect()
await consumer.subscribe({ topic, fromBeginning: true })
await new Promise((finish, fail) => {
  consumer.on(consumer.events.CRASH, ({ payload }) => fail(payload.error))
  consumer.on(consumer.events.END_BATCH_PROCESS, ({ payload: { partition, lastOffset } }) => {
    if (BigInt(lastOffset) + 1n >= ends.get(partition)) ends.delete(partition)
    if (ends.size === 0) finish()
  })
  if (ends.size === 0) finish()
  consumer.run({ autoCommit: false, eachMessage: (each) => read(each).catch(fail) }).catch(fail)
})
await consumer.disconnect()
for (const row of rows.values()) console.log(json(row))
console.error(`${records} records, ${rows.size} rows`)
