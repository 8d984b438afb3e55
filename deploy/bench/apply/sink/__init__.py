"""The peer ``debezium-jdbc``: Debezium's JDBC sink in Kafka Connect."""
