// BOOTSTRAP REGISTRY TOPIC: keeps the rows of a topic of `format: debezium-json`. JSON.parse would round integers above 2^53.

import { randomUUID } from 'node:crypto'
import { Kafka, logLevel } from 'kafkajs'
import { parse, parseNumberAndBigInt, stringify } from 'lossless-json'

const [bootstrap, , topic] = process.argv.slice(2)
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING })
const admin = kafka.admin()
await admin.connect()
const offsets = await admin.fetchTopicOffsets(topic)
const ends = new Map(offsets.filter((each) => each.low !== each.high).map((each) => [each.partition, BigInt(each.high)]))
await admin.disconnect()
const rows = new Map(), counters = new Map()
let records = 0

function read(partition, { key, value, headers }) {
  const n = Number(headers.n)
  const last = counters.get(partition) ?? n - 1
  if (n !== last + 1) throw new Error(`partition ${partition}: n is ${n} after ${last}`)
  counters.set(partition, n)
  records += 1
  const after = value && parse(String(value), undefined, parseNumberAndBigInt).after
  if (after) rows.set(String(key), after)
  else rows.delete(String(key))
}

const consumer = kafka.consumer({ groupId: `client-${randomUUID()}` })
await consumer.connect()
await consumer.subscribe({ topic, fromBeginning: true })
await new Promise((finish, fail) => {
  consumer.on(consumer.events.CRASH, ({ payload }) => fail(payload.error))
  consumer.on(consumer.events.END_BATCH_PROCESS, ({ payload: { partition, lastOffset } }) => {
    if (BigInt(lastOffset) + 1n >= ends.get(partition)) ends.delete(partition)
    if (ends.size === 0) finish()
  })
  const eachBatch = async ({ batch: { partition, messages } }) => {
    try {
      for (const message of messages) if (BigInt(message.offset) < ends.get(partition)) read(partition, message)
    } catch (error) {
      fail(error)
    }
  }
  consumer.run({ autoCommit: false, eachBatch }).catch(fail)
})
await consumer.disconnect()
for (const row of rows.values()) console.log(stringify(row))
console.error(`${records} records, ${rows.size} rows`)
