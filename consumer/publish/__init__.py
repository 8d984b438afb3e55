"""Writes the topics of a publish task exactly once.

librdkafka does not implement transaction version 2 (KIP-890): a late request to end a Kafka transaction can end a part
of the next one. These rules keep that harmless:

1  Each output partition is its own truth: its last record has its progress (`seq`, `part`). The mark is a shortcut.
2  A task has S slots. Slot s owns the output partitions with (crc32(topic) + partition) % S = s, one transactional ID
   and one partition of the topic ``<task>.progress``. Executors take slots; their number changes no ID.
3  A start fences all slots, requires stable end = high end of every partition, stops at a greater epoch, and commits a
   ``fence`` in each progress partition (``opening``). Then each slot reads its tails (``tails``).
4  A slot begins the next Kafka transaction only when the last record of every touched partition was read with
   ``read_committed``. The mark of a transaction goes with the next one. A partition without its records gets only
   them again, because a restart reads the set topic from the mark on and leaves out what a partition has.
5  If retention emptied a partition, the mark is believed only while the partition ends there and has the same topic id.
6  A partition is in the mark before it gets its first record. So a topic that has records and is not in the mark is not
   ours.
7  A producer instance that saw an error ends its slot; one with a slow commit is replaced before the next transaction.

outgoing        records for output topics, and the partition of a record
mark            the progress of a slot, as the records of its progress partition
outputs         the output topics: creates them, reads the tails of their partitions
heartbeats      how far a slot is, for subscribers
schema_changes  statements and structures of the view's tables
opening         the start of a task: fences, reads all marks
slot            writes, commits, verifies
writer          the thread that does so, while the turn reads and converts the records that follow
"""
