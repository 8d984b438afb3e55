"""Kafka as clients meet it.

access             where clients connect, and how
wire, login        a connection to one broker without librdkafka
refusals           why a broker refuses a client
open_transactions  asks a broker whose Kafka transaction is open
reader             reads a topic's partition
names, acls        names on a cluster, and the rights on them
"""
