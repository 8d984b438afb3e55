"""The records of a topic: Avro schemas, framing, control records, and decoding of any record."""
