"""The schema registry: a small one of our own, and the client that speaks to it or to Confluent's, Apicurio, Karapace.

catalog.py   what is registered, as a value: ids, subjects, versions (pure)
store.py     the Protocol of what makes it durable; in memory for tests
kafka.py     the store in a compacted topic (the one module here that knows a Kafka client)
service.py   the REST API as functions from request to answer
server.py    the same over HTTP
client.py    the blocking client that capture and apply use
"""
