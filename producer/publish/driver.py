"""The seam between the publisher's decisions and a Kafka client: what is asked of it, in values.

The real side is ``producer.publish.kafka``; tests have a model of a partition. Whatever a side raises is an error of
``millrace.errors``: Retryable (the outcome of what was asked is unknown), Fenced (a newer instance of the same
transactional id exists), Fatal. No side retries by making a new instance: that is the publisher's decision.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

PARTITION = 0  # the set topic has one

Octets = NDArray[np.uint8]
Bounds = NDArray[
    np.int64
]  # (n, 4): key_start, key_end, value_start, value_end; key_start -1: no key


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What the checks of rule 2 look at."""

    partition_count: int
    cleanup_policy: str
    record_bytes_max: int  # max.message.bytes
    replication_factor: int
    min_insync_replicas: int
    retention_ms: int  # -1: records are kept for ever


@dataclass(frozen=True, slots=True)
class Ends:
    """Offsets of partition 0: first kept, end of what read_committed may see, end of the log."""

    low: int
    stable: int
    high: int


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """One committed record as it stands in the partition."""

    offset: int
    key: bytes | None
    value: bytes


class TopicAdmin(Protocol):
    """The topic as a thing of its own."""

    def settings(self) -> TopicSettings | None:
        """None when there is no such topic."""
        ...

    def create(self, record_bytes_max: int) -> None:
        """One partition, cleanup.policy=delete; returns too when somebody else was faster."""
        ...


class Partition(Protocol):
    """Reading partition 0 with read_committed; used by one thread at a time."""

    def ends(self) -> Ends:
        """All three ends, asked of the broker."""
        ...

    def stable_end(self) -> int:
        """The end of what read_committed may see, asked of the broker."""
        ...

    def low_end(self) -> int:
        """The first offset that is kept, asked of the broker."""
        ...

    def read(self, start: int, stop: int) -> list[TopicRecord]:
        """The committed records with start <= offset < stop; ``stop`` is at most the stable end."""
        ...

    def next_record(self, offset: int, *, timeout_s: float) -> TopicRecord | None:
        """The first committed record at or behind ``offset``; None when none comes in time."""
        ...

    def close(self) -> None:
        """Release connections."""
        ...


class Transactions(Protocol):
    """One transactional producer instance; after an error only ``discard`` may be called."""

    @property
    def slow_path(self) -> str:
        """Why records are queued one by one and not a batch at a time; empty when they are not."""
        ...

    def init(self) -> None:
        """Fence older instances of the transactional id and end what they left open."""
        ...

    def begin(self) -> None:
        """Begin a Kafka transaction."""
        ...

    def add(self, records: Iterable[tuple[bytes | None, bytes]]) -> int | None:
        """Queue (key, value) records; the index of the first that is over the limit, else None."""
        ...

    def add_slices(self, buffer: Octets, bounds: Bounds) -> int | None:
        """The same for slices of a buffer."""
        ...

    def flush(self) -> None:
        """Wait until the broker has answered for every queued record."""
        ...

    def commit(self) -> float:
        """Commit; the seconds it took."""
        ...

    def abort(self) -> None:
        """Abort, and with it whatever stands open of the transactional id: for ``opening`` alone."""
        ...

    def discard(self) -> None:
        """Throw the instance away as it is: nothing is aborted, nothing waited for."""
        ...


class Driver(Protocol):
    """Makes the three for one topic."""

    def admin(self) -> TopicAdmin:
        """The topic."""
        ...

    def partition(self) -> Partition:
        """A new reader."""
        ...

    def transactions(self, record_bytes_max: int) -> Transactions:
        """A new instance; nothing is sent before ``init``."""
        ...
