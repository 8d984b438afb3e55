"""Writes records into the set topic exactly once: batches in Kafka transactions, resumed from the topic's own tail.

librdkafka does not implement transaction version 2 (KIP-890): a late request to end a transaction can end the next one.
These rules keep that harmless. Code and tests refer to them by number:

1  The topic has one partition, and its task a separate transactional ID: Kafka transactions never span two partitions.
2  The partition's own tail is the truth. A start verifies the lease and fences the previous instance. It requires the
   stable end to be the high watermark: otherwise another writer's open transaction hides our records. (If one of our
   own lost its marker, the start aborts it first.) Then it reads the tail, stops at a greater epoch, commits a
   ``fence`` with its own epoch, and resumes exactly after the tail.
3  An instance that saw an abort, an error or a slow commit is discarded and replaced. A fenced instance is replaced
   only after the lease was verified again.
4  Each commit is audited after it returned: marker and stable end are in the expected place, the last record is
   readable.
5  A GTID is done only when its last row is committed.
6  If the tail holds no position, a hint of the task's status is used, but only while the partition still ends where the
   hint says. Never "latest".

config             where a publisher writes, under which names, and its limits
driver             the interface to a Kafka client, as Protocols
kafka              the clients of one set topic, and the codes of their errors
codec              encodes and decodes our own records
positions          the positions in those records
tail               the end of the partition
opening            the start sequence: fence the previous owner, read the tail, write the fence
topic_check        whether the topic can carry a set and matches the task document
topic_schemas      reads schema IDs from the topic while the registry is unavailable
published_part     the committed records of a source transaction that is published in part
publisher          one or several batches in a Kafka transaction, and recovery when its outcome is unknown
transaction        the Kafka transaction under way, and the row in it that is too large
audit              reads each commit back, after it returned
"""
