"""Reading a set topic as a subscriber does: decoded rows, and the proof that none is missing, repeated or out of order.

kafka    records by offset, read_committed: the one module of consumer that knows confluent_kafka
verify   the guarantees of a set topic, checked record by record
decode   records explained by the schemas in the topic itself
show     a record as a line of text or as JSON
"""
