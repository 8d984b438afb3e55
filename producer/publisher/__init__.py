"""Records into the set topic, exactly once: one Kafka transaction per batch, the topic's own tail as the truth.

config      what a publisher needs to be told, and its limits
driver      the seam: what is asked of a Kafka client, as Protocols
failures    every error a client can report, and the branch it belongs to
kafka       the seam's real side: the one module here that knows confluent_kafka
suffix      the end of a row record, read without its schema
tail        what stands at the end of the partition
opening     the start sequence: fence the predecessor, read the tail, write the fence
audit       every commit is read back, behind the stream
publisher   one Kafka transaction per batch, and what to do when its outcome is unknown
"""
