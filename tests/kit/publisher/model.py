"""A model of a set topic with the driver interface: a log with transactions, fencing and late requests, no sockets.

It behaves like a broker with one partition and an unreliable network: a commit may lose its request or its answer, may
be slow, and a late duplicate of an EndTxn request may end the current transaction.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from millrace.drivers.kafka.bulk import Bounds, Octets
from millrace.drivers.kafka.reader import Ends, TopicRecord
from millrace.drivers.kafka.topic import TopicSettings
from millrace.errors import Fatal, Fenced, Retryable
from millrace.producer.publish.config import PublisherConfig, PublisherLimits
from millrace.producer.publish.positions import ChangeRecord, ProgressRecord
from millrace.producer.publish.publisher import Publisher
from millrace.schemas.documents import Brokers
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.progress import OpenTransaction, Progress
from millrace.schemas.requests.decision import Decision

START = Progress(parse_gtid_set(Flavour.MARIADB, "0-1-100"), None, 0)


def a_topic(**changed: object) -> TopicSettings:
    """The settings of a correct topic, with some ``changed``."""
    usual: dict[str, Any] = {
        "partition_count": 1,
        "cleanup_policy": "delete",
        "record_bytes_max": 1 << 20,
        "replication_factor": 3,
        "min_insync_replicas": 2,
        "retention_ms": 604_800_000,
    }
    return TopicSettings(**{**usual, **changed})


class Outcome(StrEnum):
    """The outcome of a commit."""

    OK = "ok"
    SLOW = "slow"  # OK after 0.9 s
    LOST_BEFORE = "lost before"  # error; it never took effect
    LOST_AFTER = "lost after"  # error; it took effect
    AWAY = "away"  # the broker can't be reached; no effect
    LATE_COMMIT = (
        "late commit"  # half of the records are committed by a late request; then an error
    )
    LATE_ABORT = "late abort"  # half of the records are aborted by a late request; then an error
    FOREIGN = "foreign"  # OK, and another writer's record follows directly
    FOREIGN_INSIDE = "foreign inside"  # OK, and another writer's record precedes its marker
    ABORTED_OK = (
        "aborted, answered OK"  # a broken broker: the answer is OK but the records are aborted
    )
    MARKER_AGAIN = "marker again"  # OK, and a new coordinator writes the marker again


@dataclass
class KafkaTransaction:
    """``state`` is open, committed or aborted."""

    owner: str
    state: str = "open"


@dataclass
class Entry:
    """A record, or a marker (no value)."""

    value: bytes | None
    transaction: KafkaTransaction | None
    key: bytes | None = None


@dataclass
class ModelTopic:
    """The partition and its coordinator."""

    entries: list[Entry] = field(default_factory=list)
    low: int = 0
    producer_epochs: dict[str, int] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    exists: bool = False
    settings: TopicSettings = field(default_factory=a_topic)
    is_away: bool = False

    @property
    def stable(self) -> int:
        """The first offset of an open transaction, else the end."""
        for offset, entry in enumerate(self.entries):
            if entry.transaction is not None and entry.transaction.state == "open":
                return offset
        return len(self.entries)

    def ask(self) -> None:
        """Called for each request."""
        if self.is_away:
            raise Retryable("MR-3001", "the model broker is away")

    def append(
        self, owner: KafkaTransaction, records: Sequence[tuple[bytes | None, bytes]]
    ) -> None:
        """Write records of an open transaction."""
        self.entries += [Entry(value, owner, key) for key, value in records]

    def end(self, transaction: KafkaTransaction, state: str) -> None:
        """Write a marker."""
        transaction.state = state
        self.entries.append(Entry(None, None))

    def end_open(self, owner: str, state: str) -> None:
        """End the open transactions of ``owner``, as a late EndTxn or a new epoch does."""
        for entry in list(self.entries):
            opened = entry.transaction
            if opened is not None and opened.owner == owner and opened.state == "open":
                self.end(opened, state)

    def committed(self) -> list[TopicRecord]:
        """The records that a read_committed reader sees."""
        return [
            TopicRecord(offset, entry.key, entry.value)
            for offset, entry in enumerate(self.entries[: self.stable])
            if offset >= self.low
            and entry.value is not None
            and (entry.transaction is None or entry.transaction.state == "committed")
        ]

    def seqs(self) -> list[int]:
        """``seq`` of every committed row, in order."""
        decoded = (json.loads(record.value) for record in self.committed())
        return [row["seq"] for row in decoded if row["kind"] == "row"]


class ModelTransactions:
    """One producer instance."""

    slow_path = ""

    def __init__(self, topic: ModelTopic, owner: str, record_bytes_max: int) -> None:
        self._topic = topic
        self._owner = owner
        self._record_bytes_max = record_bytes_max
        self._epoch = -1
        self._queued: list[tuple[bytes | None, bytes]] = []
        self._transaction: KafkaTransaction | None = None

    def init(self) -> None:
        self._topic.ask()
        self._epoch = self._topic.producer_epochs.get(self._owner, 0) + 1
        self._topic.producer_epochs[self._owner] = self._epoch
        self._topic.end_open(self._owner, "aborted")

    def _check_epoch(self) -> None:
        self._topic.ask()
        if self._topic.producer_epochs[self._owner] != self._epoch:
            raise Fenced("MR-3003", "the model coordinator knows a newer producer epoch")

    def begin(self) -> None:
        self._queued = []
        self._transaction = KafkaTransaction(self._owner)

    def add(self, records: Iterable[tuple[bytes | None, bytes]]) -> int | None:
        for index, (key, value) in enumerate(records):
            if len(value) > self._record_bytes_max:
                return index
            self._queued.append((key, value))
        return None

    def add_slices(self, buffer: Octets, bounds: Bounds) -> int | None:
        octets = buffer.tobytes()
        return self.add(
            (None if ks < 0 else octets[ks:ke], octets[vs:ve]) for ks, ke, vs, ve in bounds.tolist()
        )

    def flush(self) -> None:
        self._check_epoch()
        assert self._transaction is not None
        half = len(self._queued) // 2
        outcome = self._topic.outcomes[0] if self._topic.outcomes else Outcome.OK
        if outcome in (Outcome.LATE_COMMIT, Outcome.LATE_ABORT):
            self._topic.outcomes.pop(0)
            self._topic.append(self._transaction, self._queued[:half])
            state = "committed" if outcome is Outcome.LATE_COMMIT else "aborted"
            self._topic.end(self._transaction, state)
            raise Retryable("MR-3002", "INVALID_TXN_STATE")
        self._topic.append(self._transaction, self._queued)

    def commit(self) -> float:
        self._check_epoch()
        assert self._transaction is not None
        outcome = self._topic.outcomes.pop(0) if self._topic.outcomes else Outcome.OK
        if outcome is Outcome.AWAY:
            raise Retryable("MR-3001", "no answer")
        if outcome is Outcome.LOST_BEFORE:
            raise Retryable("MR-3002", "no answer")
        if outcome is Outcome.FOREIGN_INSIDE:
            self._topic.entries.append(Entry(b'{"kind": "schema"}', None))
        self._topic.end(
            self._transaction, "aborted" if outcome is Outcome.ABORTED_OK else "committed"
        )
        if outcome is Outcome.MARKER_AGAIN:
            self._topic.entries.append(Entry(None, None))
        if outcome is Outcome.FOREIGN:
            self._topic.entries.append(Entry(b'{"kind": "schema"}', None))
        if outcome is Outcome.LOST_AFTER:
            raise Retryable("MR-3002", "no answer")
        return 0.9 if outcome is Outcome.SLOW else 0.001

    def abort(self) -> None:
        self._check_epoch()
        self._topic.end_open(self._owner, "aborted")

    def discard(self) -> None:
        self._queued = []


class ModelPartition:
    """Reads the model."""

    def __init__(self, topic: ModelTopic) -> None:
        self._topic = topic

    def all_ends(self) -> Ends:
        self._topic.ask()
        return Ends(self._topic.low, self._topic.stable, len(self._topic.entries))

    def stable_end(self) -> int:
        self._topic.ask()
        return self._topic.stable

    def low_end(self) -> int:
        self._topic.ask()
        return self._topic.low

    def read(self, start: int, stop: int) -> list[TopicRecord]:
        self._topic.ask()
        return [record for record in self._topic.committed() if start <= record.offset < stop]

    def next_record(self, offset: int, *, timeout_s: float) -> TopicRecord | None:
        self._topic.ask()
        return next((r for r in self._topic.committed() if r.offset >= offset), None)

    def close(self) -> None:
        pass


class ModelAdmin:
    """The topic itself."""

    def __init__(self, topic: ModelTopic) -> None:
        self._topic = topic

    def settings(self) -> TopicSettings | None:
        self._topic.ask()
        return self._topic.settings if self._topic.exists else None

    def create(self, record_bytes_max: int) -> None:
        self._topic.exists = True


class ModelDriver:
    """Makes the model's clients for a publisher with ``owner`` as its transactional id."""

    def __init__(self, topic: ModelTopic, owner: str = "task") -> None:
        self._topic = topic
        self._owner = owner

    def admin(self) -> ModelAdmin:
        return ModelAdmin(self._topic)

    def partition(self) -> ModelPartition:
        return ModelPartition(self._topic)

    def transactions(self, record_bytes_max: int) -> ModelTransactions:
        return ModelTransactions(self._topic, self._owner, record_bytes_max)


class ModelCodec:
    """Records as JSON, so failing tests are readable."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch

    def run_start(self, progress: Progress) -> Sequence[bytes]:
        return [json.dumps({"kind": "schema"}).encode(), self._mark("fence", progress)]

    def gap(self, decision: Decision, result: Progress) -> Sequence[bytes]:
        row = {"gtid": decision.gtid, "rows": decision.number, "last": True}
        value = {"kind": "row", "seq": result.seq, "decision": decision.id} | row
        return [json.dumps(value).encode(), self.resolved(result)]

    def decision_of(self, value: bytes) -> str:
        return str(json.loads(value).get("decision", ""))

    def opens_run(self, value: bytes) -> bool:
        return b'"schema"' in value

    def resolved(self, progress: Progress) -> bytes:
        return self._mark("resolved", progress)

    def _mark(self, kind: str, progress: Progress) -> bytes:
        opened = None if progress.open is None else [progress.open.gtid, progress.open.rows]
        value = {"kind": kind, "set": str(progress.gtid_set), "open": opened, "seq": progress.seq}
        return json.dumps(value | {"epoch": self._epoch}).encode()

    def read(self, value: bytes) -> ProgressRecord | ChangeRecord | None:
        try:
            found = json.loads(value)
        except ValueError as wrong:
            raise Fatal("MR-6007", "not JSON") from wrong
        if found["kind"] == "schema":
            return None
        if found["kind"] == "row":
            return ChangeRecord(found["gtid"], found["rows"], found["last"], found["seq"])
        opened = None if found["open"] is None else OpenTransaction(*found["open"])
        gtid_set = parse_gtid_set(Flavour.MARIADB, found["set"])
        return ProgressRecord(Progress(gtid_set, opened, found["seq"]), found["epoch"], "")


@dataclass(frozen=True)
class Batch:
    """A RecordBatchLike."""

    buffer: Octets
    bounds: Bounds
    progress: Progress


def batch_after(progress: Progress, count: int, *, filler: str = "") -> Batch:
    """``count`` rows after ``progress`` in source transactions of three rows; the batch may end inside one."""
    values = []
    gtid_set, opened, seq = progress.gtid_set, progress.open, progress.seq
    for _ in range(count):
        seq += 1
        sequence = int(str(gtid_set).rsplit("-", 1)[1]) + 1
        rows = 1 if opened is None else opened.rows + 1
        gtid = f"0-1-{sequence}"
        last = rows == 3
        row = {
            "kind": "row",
            "gtid": gtid,
            "rows": rows,
            "last": last,
            "seq": seq,
            "filler": filler,
        }
        values.append(json.dumps(row).encode())
        opened = None if last else OpenTransaction(gtid, rows)
        if last:
            gtid_set = parse_gtid_set(Flavour.MARIADB, gtid)
    ends = np.cumsum([0, *map(len, values)]).astype(np.int64)
    bounds = np.full((count, 4), -1, np.int64)
    bounds[:, 2], bounds[:, 3] = ends[:-1], ends[1:]
    return Batch(np.frombuffer(b"".join(values), np.uint8), bounds, Progress(gtid_set, opened, seq))


def publish_and_close(publisher: Publisher, count: int) -> None:
    """Publish and close; either of them raises what the audit finds."""
    publisher.publish(batch_after(publisher.progress, count))
    publisher.close()


def model_config(epoch: int = 7) -> PublisherConfig:
    """Short timeouts: the model answers at once."""
    limits = PublisherLimits(audit_timeout_s=0.3, stable_timeout_s=0.2, publish_timeout_s=1.0)
    return PublisherConfig(
        brokers=Brokers("model:0"),
        topic="shop",
        transactional_id="task",
        epoch=epoch,
        worker="w1",
        set="shop",
        flavour=Flavour.MARIADB,
        limits=limits,
    )
