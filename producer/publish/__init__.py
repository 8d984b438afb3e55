"""Records into the set topic, exactly once: one Kafka transaction per batch, the topic's own tail as the truth.

librdkafka speaks no transaction version 2 (KIP-890): a request to end a transaction that arrives late can end the next
one. The rules that keep this harmless, by the numbers that code and tests name them by:

1  The topic has one partition, and the task a transactional id of its own: Kafka transactions never span two.
2  The truth is the partition's own tail. A start verifies the lease, fences the instance before it, wants the stable
   end at the high watermark (else another writer's open transaction hides our records; one of ours that lost its marker
   is aborted first), reads the tail, stops at a greater epoch, commits a ``fence`` with its own, and goes on exactly
   behind what stands.
3  An instance that saw an abort, an error or a slow commit is thrown away and made anew. One that is fenced is not,
   before the lease has been verified again.
4  Each commit is audited behind the stream: marker and stable end where they should be, the last record readable.
5  A GTID is done only when its last row is in.
6  Where the tail holds nothing to go on from, a hint of the task's status is believed only while the partition still
   ends where the hint says. Never "latest".

config          where a publisher writes, under which names, and its limits
driver          the seam: what is asked of a Kafka client, as Protocols
errors          every error a client can report, and the branch it belongs to
kafka           the clients of one set topic; its transactional producer
kafka_topic     reads the partition, asks for and creates the topic
bulk            its way of queueing a whole batch in one call
open_transactions  whose Kafka transaction is open, asked of the broker directly
codec           our own records in their real form
positions       what those records say, and where a row stands
tail            what stands at the end of the partition
opening         the start sequence: fence the predecessor, read the tail, write the fence
topic_check     whether the topic can carry a set, and is as the task document says
topic_schemas   schema ids that the topic tells while the registry is away
published_part  what stands of a source transaction that is published in part
publisher       one Kafka transaction per batch, and what to do when its outcome is unknown
oversize        which row is too large
audit           every commit is read back, behind the stream
"""
