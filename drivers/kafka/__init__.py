"""Kafka as clients meet it.

access             where clients connect, and how
errors             every error: its kind and what happens next; each client gives the kinds its codes
reader             reads a topic's partition
partitions         asks about many topics, and reads the ends of their partitions
producer           a transactional producer
bulk, headers      queue a whole batch in one call; with headers in a compiled loop
topic              a topic's settings, and its creation
wire, login        a connection to one broker without librdkafka: why it refuses a client
open_transactions  asks a broker whose Kafka transaction is open
names, acls        names on a cluster, and the rights on them
"""
