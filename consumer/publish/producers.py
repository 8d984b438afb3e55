"""The transactional producer of a slot, and what it writes into the slot's partition of the progress topic."""

from collections.abc import Collection, Mapping

import numpy as np

from millrace.consumer.publish.mark import Mark, marks_in
from millrace.consumer.publish.outputs import Outputs, TaskOrder, fenced_by
from millrace.drivers.kafka.access import Settings
from millrace.drivers.kafka.headers import HeaderedRecords
from millrace.drivers.kafka.names import transactional_id
from millrace.drivers.kafka.partitions import Place
from millrace.drivers.kafka.producer import WRITING, TransactionalProducer, compression
from millrace.drivers.kafka.reader import Ends
from millrace.errors import Fatal, Retryable

# of the progress topic: small segments, so that compaction keeps a start short
PROGRESS_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 * 1024 * 1024),
    "segment.ms": str(3_600_000),
    "min.cleanable.dirty.ratio": "0.1",
}


OVERSIZE_CODE = "MR-3004"  # of a writer


class SlotProducer:
    """One producer instance of slot ``slot``. Its first act is to fence older instances and end their transactions."""

    def __init__(self, order: TaskOrder, slot: int) -> None:
        limits = order.limits
        self._order, self.place = order, (order.progress_topic, slot)
        settings: Settings = {
            "client.id": f"millrace-{order.worker}",
            "transactional.id": self.id,
            "transaction.timeout.ms": limits.transaction_timeout_ms,
            "retry.backoff.ms": limits.retry_backoff_ms,
            "retry.backoff.max.ms": limits.retry_backoff_ms,
            "reconnect.backoff.max.ms": 1000,
            "socket.nagle.disable": True,
            "message.max.bytes": limits.record_bytes_max,
            "linger.ms": 20,  # `flush` ends it
            "batch.size": 1024 * 1024,
            **compression(order.compression),
        }
        self.kafka = TransactionalProducer(
            order.brokers,
            order.progress_topic,
            errors=WRITING,
            settings=settings,
            timeout_s=limits.publish_timeout_s,
            partition=slot,
        )
        try:
            self.kafka.init()
        except BaseException:
            self.kafka.discard()
            raise

    @property
    def id(self) -> str:
        return transactional_id(*self.place)

    def abort_in(self, places: Collection[Place]) -> None:
        """Abort a transaction of this ID that lost its marker in these partitions, by beginning and aborting one."""
        topics = tuple(dict.fromkeys(topic for topic, _ in places))
        lines = np.array(
            [(topics.index(topic), partition, -1, -1, 0, 0) for topic, partition in places],
            np.int64,
        )
        self.kafka.begin()
        self.kafka.add_headered(HeaderedRecords(topics, np.zeros(1, np.uint8), lines))
        self.kafka.flush()
        self.kafka.abort()

    def commit_mark(self, records: Mapping[bytes, bytes | None], outputs: Outputs) -> float:
        """Commit these records of the progress partition alone, and read the last one back. Returns the seconds.

        MR-3002 if it is not there: the start that follows reads what is.
        """
        end = outputs.topics.stable_ends([self.place])[self.place]
        self.kafka.begin()
        longest = max(records, key=lambda key: len(records[key] or b""), default=b"")
        what = f"a record of topic {self.place[0]} is over its limit"
        too_large = Fatal("MR-3106", what, key=longest.decode(), bytes=len(records[longest] or b""))
        if self.kafka.add(list(records.items())) is not None:
            raise too_large
        try:
            self.kafka.flush()
            took_s = self.kafka.commit()
        except Fatal as failure:
            if failure.code == OVERSIZE_CODE:
                raise too_large from failure
            raise
        last = end + len(records) - 1
        read = outputs.reader.last(
            {self.place: (last, last + 1)}, within_s=self._order.limits.audit_timeout_s
        ).get(self.place)
        if read is None or (read.key, read.value) != list(records.items())[-1]:
            raise Retryable("MR-3002", f"the mark of {self.id} is not at offset {last}")
        return took_s


def read_mark(order: TaskOrder, outputs: Outputs, place: Place, ends: Ends) -> Mark:
    """The mark in a progress partition; Fenced if a greater epoch has written it."""
    ranges = {place: (ends.low, ends.stable)}
    mark = marks_in(outputs.reader, ranges, within_s=order.limits.audit_timeout_s)[place]
    if mark.epoch > order.epoch:
        raise fenced_by(mark.epoch, order, f"topic {order.progress_topic}")
    return mark
