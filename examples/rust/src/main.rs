//! Reads a topic of `format: avro` with rdkafka and schema_registry_converter, and prints the table that it makes.
//!
//! Install: Rust 1.89 or later, a C compiler and make; librdkafka comes with the crate
//! Run:     cargo run --release -- 127.0.0.1:9092 http://127.0.0.1:8081 avro.shop.orders
use std::collections::{BTreeMap, HashMap, HashSet};
use std::{env, error::Error, time::Duration};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError::PartitionEOF;
use rdkafka::message::{Headers, Message};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use schema_registry_converter::blocking::{avro::AvroDecoder, schema_registry::SrSettings};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> Result<(), Box<dyn Error>> {
    let [bootstrap, registry, topic] = env::args().skip(1).collect::<Vec<_>>().try_into().expect("three arguments");
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "rust-example") // without commits the broker stores nothing
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true") // reports the end of each partition
        .set("isolation.level", "read_committed")
        .set("check.crcs", "true") // librdkafka's default is false
        .create()?;
    let (mut unfinished, mut assignment) = (HashSet::new(), TopicPartitionList::new());
    for partition in consumer.fetch_metadata(Some(&topic), PATIENCE)?.topics()[0].partitions() {
        unfinished.insert(partition.id());
        assignment.add_partition_offset(&topic, partition.id(), Offset::Beginning)?;
    }
    consumer.assign(&assignment)?;
    let decoder = AvroDecoder::new(SrSettings::new(registry)); // keeps the schemas
    let (mut rows, mut counters, mut records) = (BTreeMap::new(), HashMap::<i32, i64>::new(), 0);
    while !unfinished.is_empty() {
        let message = match consumer.poll(PATIENCE).ok_or("the broker does not answer")? {
            Err(PartitionEOF(partition)) => {
                unfinished.remove(&partition);
                continue;
            }
            message => message?,
        };
        let n = message.headers().and_then(|all| all.iter().find(|header| header.key == "n")?.value);
        let n: i64 = str::from_utf8(n.ok_or("a record without n")?)?.parse()?;
        if let Some(last) = counters.insert(message.partition(), n).filter(|last| n != last + 1) {
            return Err(format!("partition {}: n is {n} after {last}", message.partition()).into());
        }
        let key = Value::try_from(decoder.decode(message.key())?.value)?.to_string();
        match Value::try_from(decoder.decode(message.payload())?.value)?["after"].take() {
            Value::Null => rows.remove(&key), // a delete, or the tombstone after it
            row => rows.insert(key, row),
        };
        records += 1;
    }
    rows.values().for_each(|row| println!("{row}"));
    eprintln!("{records} records, {} rows", rows.len());
    Ok(())
}
