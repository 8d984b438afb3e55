"""A subscriber's reader of a set topic: decoded records, checked for gaps, repeats and order.

    from millrace.client import Subscriber

    with Subscriber("127.0.0.1:9092", "shop", place=saved) as subscriber:
        for record in subscriber.follow():
            …                              # RowRecord, DdlRecord, ResolvedRecord, FenceRecord or SnapshotRecord
            save(subscriber.place)         # together with the effect of the record

It needs Python, confluent-kafka and fastavro alone: ``pip install --no-deps confluent-kafka fastavro millrace-*.whl``.
It asks no schema registry: the topic explains its records.

Guarantees: only committed records are read. A record is returned after all rules of ``consumer.topic.verify`` hold for
it, so that `seq` has no gap and no repeat from ``place`` on. Nothing is written to Kafka: no consumer group is joined
and no offset is committed.
Not done here: saving the place; retrying after a Retryable error (open another Subscriber at the saved place).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self, TypeAlias

from millrace.consumer.topic.decode import TopicLookUp
from millrace.consumer.topic.verify import TopicVerifier
from millrace.drivers.kafka.access import GivenAccess
from millrace.drivers.kafka.reader import TopicReader, TopicRecord
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.schemas.record.control import (
    DdlRecord,
    FenceRecord,
    ResolvedRecord,
    SchemaRecord,
    SnapshotRecord,
)
from millrace.schemas.record.record import KnownSchemas, LookUp, Record, RowRecord, decode_record

__all__ = [
    "DdlRecord",
    "Delivered",
    "Fatal",
    "FenceRecord",
    "MillraceError",
    "Place",
    "RecordStream",
    "ResolvedRecord",
    "Retryable",
    "RowRecord",
    "SnapshotRecord",
    "Subscriber",
]

Delivered: TypeAlias = RowRecord | DdlRecord | ResolvedRecord | FenceRecord | SnapshotRecord


@dataclass(frozen=True, slots=True)
class Place:
    """Where a subscriber resumes.

    ``offset`` is Kafka's offset of the next record to read. ``seq`` is the number of the last row or DDL record before
    it; None where it is not known: `seq` is then checked from the first record on.
    """

    offset: int
    seq: int | None = None


class RecordStream:
    """Decodes and checks records that the caller reads. It does no I/O except through ``look_up``.

    ``place`` is where the first record is. ``look_up`` returns the text of a schema ID that was introduced before
    ``place``. ``from_beginning``: the first record is the first that was ever committed to the topic.
    """

    def __init__(
        self, place: Place, *, look_up: LookUp | None = None, from_beginning: bool = False
    ) -> None:
        self._known = KnownSchemas(look_up)
        self._verifier = TopicVerifier(from_beginning=from_beginning, seq=place.seq)
        self._place = place
        self._resolved: ResolvedRecord | FenceRecord | None = None

    @property
    def place(self) -> Place:
        """The place after the last record taken."""
        return self._place

    @property
    def resolved(self) -> ResolvedRecord | FenceRecord | None:
        """The last resolved or fence record: its ``progress`` holds the GTID set delivered. None before the first."""
        return self._resolved

    def take(self, offset: int, key: bytes | None, value: bytes) -> Delivered | None:
        """The next committed record, decoded; None for a schema record, which explains others.

        Raises Fatal MR-3503 when a record is missing, repeated, out of order or of a stale owner, MR-6009 for an
        unknown schema ID, MR-6007 and MR-6010 for bytes that do not decode. The stream must not be used after an error.
        """
        self._verifier.feed(offset, key, value)
        for violation in self._verifier.summary.violations:
            raise Fatal("MR-3503", f"offset {offset}: {violation.check}: {violation.what}")
        record = decode_record(key, value, self._known)
        self._place = Place(offset + 1, _seq_of(record))
        if isinstance(record, SchemaRecord):
            return None
        if isinstance(record, ResolvedRecord | FenceRecord):
            self._resolved = record
        return record


class Subscriber:
    """Reads a set topic from a place, or from the first record that Kafka still has.

    Close it, or use it in a ``with`` statement.

    ``bootstrap`` is host:port[,host:port]; ``client`` holds further librdkafka settings, such as those of TLS and SASL.
    Every method raises MR-3501: Retryable when no broker answers, Fatal when the topic is missing. A missing right is
    Fatal MR-7010 or MR-7013.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        place: Place | None = None,
        client: Mapping[str, str] | None = None,
    ) -> None:
        """Raise Fatal MR-5030 when the topic ends before ``place``: it is another topic of the same name."""

        def reader() -> TopicReader:
            return TopicReader(GivenAccess(bootstrap, client or {}), topic)

        self._reader = reader()
        ends = self._reader.ends()
        if place is not None and place.offset > ends.stable:
            self._reader.close()
            message = (
                f"topic {topic} ends at offset {ends.stable}, before the saved place {place.offset}"
            )
            raise Fatal("MR-5030", message)
        # retention: `seq` shows what it removed
        start = max(ends.low, place.offset if place else 0)
        self._stream = RecordStream(
            Place(start, place.seq if place else None),
            look_up=TopicLookUp(reader, start),
            from_beginning=start == 0,
        )

    @property
    def place(self) -> Place:
        """The place after the last record returned. Save it together with the effect of that record."""
        return self._stream.place

    @property
    def resolved(self) -> ResolvedRecord | FenceRecord | None:
        """The last resolved or fence record that was read; see ``RecordStream.resolved``."""
        return self._stream.resolved

    def read_to_end(self) -> Iterator[Delivered]:
        """The records from ``place`` to the end that the topic has now. Raises what ``RecordStream.take`` raises."""
        return self._taken(self._reader.chunks(self.place.offset, self._reader.ends().stable))

    def follow(self, stop_asked: Callable[[], bool] = lambda: False) -> Iterator[Delivered]:
        """The records from ``place``, and new ones as they arrive, until ``stop_asked`` returns true.

        It is called at least every second. Raises what ``RecordStream.take`` raises.
        """
        return self._taken(self._reader.follow(self.place.offset, stop_asked))

    def close(self) -> None:
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _taken(self, chunks: Iterator[list[TopicRecord]]) -> Iterator[Delivered]:
        for chunk in chunks:
            for found in chunk:
                record = self._stream.take(found.offset, found.key, found.value)
                if record is not None:
                    yield record


def _seq_of(record: Record) -> int:
    match record:
        case RowRecord() | DdlRecord():
            return record.source.seq
        case SchemaRecord() | SnapshotRecord():
            return record.seq
        case ResolvedRecord() | FenceRecord():
            return record.progress.seq
