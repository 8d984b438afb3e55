"""The interface between the publisher's decisions and a Kafka client, in values.

``producer.publish.kafka`` implements it; tests use a model of a partition. Each implementation raises only errors of
``millrace.errors``: Retryable (the outcome is unknown), Fenced (a newer instance of the same transactional ID exists),
Fatal. No implementation retries with a new instance: the publisher decides that.
"""

from collections.abc import Iterable
from typing import Protocol

from millrace.drivers.kafka.bulk import Bounds, Octets
from millrace.drivers.kafka.reader import Ends, TopicRecord
from millrace.drivers.kafka.topic import TopicSettings


class TopicAdmin(Protocol):
    def settings(self) -> TopicSettings | None: ...

    def create(self, record_bytes_max: int) -> None:
        """Create the topic with one partition and cleanup.policy=delete, unless another client creates it first."""


class Partition(Protocol):
    """Reads partition 0 with read_committed; used by one thread at a time."""

    def all_ends(self) -> Ends:
        """Ask the broker for all three ends."""

    def stable_end(self) -> int:
        """Ask the broker for the end of what read_committed readers see."""

    def low_end(self) -> int: ...

    def read(self, start: int, stop: int) -> list[TopicRecord]:
        """The committed records with start <= offset < stop; ``stop`` is at most the stable end."""

    def next_record(self, offset: int, *, timeout_s: float) -> TopicRecord | None:
        """The first committed record at or after ``offset``; None if there is none in time."""

    def close(self) -> None: ...


class Transactions(Protocol):
    """One transactional producer instance; after an error only ``discard`` may be called."""

    @property
    def slow_path(self) -> str:
        """Why records are queued one by one instead of in batches; empty if they are in batches."""

    def init(self) -> None:
        """Fence older instances of the transactional ID and end their open transactions."""

    def begin(self) -> None: ...

    def add(self, records: Iterable[tuple[bytes | None, bytes]]) -> int | None:
        """Queue (key, value) records; the index of the first that is over the limit, else None."""

    def add_slices(self, buffer: Octets, bounds: Bounds) -> int | None:
        """Queue slices of a buffer; the index of the first that is over the limit, else None."""

    def flush(self) -> None:
        """Wait until the broker has answered for each queued record."""

    def commit(self) -> float: ...

    def abort(self) -> None:
        """Abort all open transactions of the transactional ID. Only ``opening`` uses it."""

    def discard(self) -> None:
        """Discard the instance without an abort and without waiting."""


class Driver(Protocol):
    """Makes the three clients of one topic."""

    def admin(self) -> TopicAdmin: ...

    def partition(self) -> Partition: ...

    def transactions(self, record_bytes_max: int) -> Transactions:
        """A new producer instance; it sends nothing before ``init``."""
