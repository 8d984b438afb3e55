"""Debezium's connectors beside publish tasks: the same binlog, records compared field by field."""
