//! Asks a registry with schema_registry_converter: ask REGISTRY TOPIC FRAME (in hex). Prints what it got as JSON.
use std::{env, error::Error};

use schema_registry_converter::blocking::{avro::AvroDecoder, schema_registry as registry};
use schema_registry_converter::schema_registry_common::SubjectNameStrategy;
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let [address, topic, hex] = env::args().skip(1).collect::<Vec<_>>().try_into().expect("three arguments");
    let frame = octets(&hex)?;
    let settings = registry::SrSettings::new(address);
    let row: Value = AvroDecoder::new(settings.clone()).decode(Some(&frame))?.value.try_into()?;
    let id = u32::from_be_bytes(frame[1..5].try_into()?);
    let schema: Value = serde_json::from_str(&registry::get_schema_by_id(id, &settings)?.schema)?;
    let value = SubjectNameStrategy::TopicNameStrategy(topic.clone(), false);
    let latest = registry::get_schema_by_subject(&settings, &value)?.id;
    let subjects = registry::get_all_subjects(&settings)?;
    let versions = registry::get_all_versions(&settings, format!("{topic}-value"))?;
    println!("{}", json!({"row": row, "schema": schema, "latest": latest, "subjects": subjects, "versions": versions}));
    Ok(())
}

fn octets(hex: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    (0..hex.len()).step_by(2).map(|at| Ok(u8::from_str_radix(&hex[at..at + 2], 16)?)).collect()
}
