"""Debezium's MySQL connector on Kafka Connect, as a peer of capture."""
