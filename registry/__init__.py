"""The built-in schema registry, and a client for it and for Confluent's registry, Apicurio and Karapace.

catalog.py     the registered schemas as a value: IDs, subjects, versions (pure)
kafka.py       the store in a compacted topic
ownership.py   which registry may start on a topic
broker.py      calls to Kafka and their errors
service.py     the REST API as functions from request to answer, and the Protocol of a store
server.py      the REST API over HTTP
client.py      the blocking client that capture and apply use
"""
