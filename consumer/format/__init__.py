"""The records of publish tasks: the changes of a table in a format that subscribers know, as bytes.

table_format     compiles a format for one table, and encodes the changes of a batch
columns          the form and the type of each column
connect_schema   the schemas that Kafka Connect's JSON carries
undecodable      texts that are not valid in their character set
encoded          the result
"""
