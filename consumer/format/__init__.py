"""The records of publish tasks: the changes of a table in a format that subscribers know, as bytes.

table_format     what a publish task needs of a format for one table
formats          the formats by their names
record_format    the call of a kernel that json_format and avro_format have in common
json_format      debezium-json and json
flat_format      maxwell-json and canal-json
flat_columns     the form and the type of each column in them
avro_format      Debezium's envelope and the set topic's, in Avro
avro_data        Connect schemas as Avro schemas
json_object      the columns of a view as members of JSON objects
columns          the form and the type of each column
connect_schema   the schemas that Kafka Connect's JSON carries
cloud_events     attributes of CloudEvents as headers
transactions     Debezium's transaction topic
heartbeats       Debezium's heartbeats
schema_changes   Debezium's topic of schema changes
undecodable      texts that are not valid in their character set
encoded          the result
"""
