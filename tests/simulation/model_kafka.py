"""One partition and its transaction coordinator, as a broker without transaction verification behaves.

    producer epoch   init raises it and aborts the open transaction of the older instance; a smaller one is refused
    EndTxn           ends the open transaction; repeated, it succeeds after a commit and fails after an abort
    late requests    an EndTxn that the network delays: it arrives at any later request, with its sender's epoch
    a late end inside a Kafka transaction: the records so far are committed (or aborted), later ones belong to a
    transaction that the coordinator does not know and never ends (a broker since 3.6 refuses it; this is harsher)

Offsets: markers and aborted records have offsets too.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from millrace.drivers.kafka.bulk import Bounds, Octets
from millrace.drivers.kafka.reader import Ends, TopicRecord
from millrace.drivers.kafka.topic import TopicSettings
from millrace.errors import Fenced, Retryable
from tests.simulation.gate import Process

RECORD_BYTES_MAX = 1 << 20
SLOW_S = 0.9
FAST_S = 0.001


class State(StrEnum):
    """The state of a Kafka transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Answer(StrEnum):
    """The outcome of a commit."""

    OK = "ok"
    SLOW = "slow"  # OK, after a retry whose first request is still under way
    LOST_BEFORE = "lost before"  # an error; the request is still under way
    LOST_AFTER = "lost after"  # it took effect, the client gets an error; a repetition is under way
    AWAY = "away"  # nothing was sent


@dataclass(slots=True)
class KafkaTransaction:
    """A Kafka transaction with records from offset ``first``."""

    first: int
    state: State = State.OPEN


@dataclass(frozen=True, slots=True)
class Entry:
    """A record, or a marker (no value)."""

    key: bytes | None
    value: bytes | None
    transaction: KafkaTransaction | None


@dataclass(frozen=True, slots=True)
class LateEnd:
    """A delayed EndTxn."""

    epoch: int
    state: State


@dataclass
class ModelTopic:
    """The log, and the state of the coordinator."""

    entries: list[Entry] = field(default_factory=list)
    low: int = 0
    epoch: int = 0
    ongoing: KafkaTransaction | None = None
    last: State = State.COMMITTED
    late: list[LateEnd] = field(default_factory=list)
    late_state: State = State.COMMITTED  # the end that a repetition requests
    answers: list[Answer] = field(default_factory=list)
    exists: bool = False
    _open: list[KafkaTransaction] = field(default_factory=list)

    @property
    def high(self) -> int:
        """The end of the log."""
        return len(self.entries)

    @property
    def stable(self) -> int:
        """The first offset of an open transaction, else the end."""
        return min((opened.first for opened in self._open), default=self.high)

    def init(self) -> int:
        """Start a new producer epoch; the open transaction of the former one is aborted."""
        self.epoch += 1
        if self.ongoing is not None:
            self._end(State.ABORTED)
        self.last = State.COMMITTED
        return self.epoch

    def append(
        self, transaction: KafkaTransaction | None, records: Iterable[tuple[bytes | None, bytes]]
    ) -> KafkaTransaction:
        """Append records of an instance that assumes ``transaction`` (None: these are its first)."""
        if transaction is None:
            transaction = self.ongoing = KafkaTransaction(self.high)
            self._open.append(transaction)
        elif transaction.state is not State.OPEN:  # ended without the instance's knowledge
            transaction = KafkaTransaction(self.high)
            self._open.append(transaction)
        self.entries += [Entry(key, value, transaction) for key, value in records]
        return transaction

    def end(self, state: State) -> bool:
        """EndTxn of the current epoch; False is INVALID_TXN_STATE."""
        if self.ongoing is not None:
            self._end(state)
            return True
        return self.last is state

    def deliver_late(self) -> None:
        """All late requests arrive; those of a former epoch are refused."""
        for late in self.late:
            if late.epoch == self.epoch:
                self.end(late.state)
        self.late.clear()

    def committed(self, start: int, stop: int) -> list[TopicRecord]:
        """The records in these offsets that read_committed returns."""
        start, stop = max(start, self.low), min(stop, self.stable)
        return [
            TopicRecord(offset, entry.key, entry.value)
            for offset, entry in enumerate(self.entries[start:stop], start)
            if entry.value is not None
            and (entry.transaction is None or entry.transaction.state is State.COMMITTED)
        ]

    def _end(self, state: State) -> None:
        assert self.ongoing is not None
        self.ongoing.state = self.last = state
        self._open.remove(self.ongoing)
        self.ongoing = None
        self.entries.append(Entry(None, None, None))


def _away() -> Exception:
    return Retryable("MR-3001", "the model broker does not answer")


def _unknown() -> Exception:
    return Retryable("MR-3002", "no answer from the model broker")


class ModelTransactions:
    """One producer instance."""

    slow_path = ""

    def __init__(self, topic: ModelTopic, process: Process) -> None:
        self._topic = topic
        self._process = process
        self._epoch = -1
        self._queued: list[tuple[bytes | None, bytes]] = []
        self._transaction: KafkaTransaction | None = None

    def init(self) -> None:
        with self._process.asks(_away):
            self._epoch = self._topic.init()

    def begin(self) -> None:
        self._queued = []
        self._transaction = None

    def add(self, records: Iterable[tuple[bytes | None, bytes]]) -> int | None:
        self._queued += records
        return None

    def add_slices(self, buffer: Octets, bounds: Bounds) -> int | None:
        octets = buffer.tobytes()
        return self.add(
            (None if ks < 0 else octets[ks:ke], octets[vs:ve]) for ks, ke, vs, ve in bounds.tolist()
        )

    def flush(self) -> None:
        half = len(self._queued) // 2
        for part in (self._queued[:half], self._queued[half:]):
            if part:
                with self._process.asks(_unknown):
                    self._check_epoch()
                    self._transaction = self._topic.append(self._transaction, part)
        self._queued = []

    def commit(self) -> float:
        answer = self._topic.answers.pop(0) if self._topic.answers else Answer.OK
        if answer is Answer.AWAY:
            raise _away()
        if answer is not Answer.OK:
            state = State.COMMITTED if answer is Answer.LOST_BEFORE else self._topic.late_state
            self._topic.late.append(LateEnd(self._epoch, state))
        if answer is Answer.LOST_BEFORE:
            raise _unknown()
        with self._process.asks(_unknown):
            self._check_epoch()
            if not self._topic.end(State.COMMITTED):
                raise Retryable("MR-3002", "INVALID_TXN_STATE")
        if answer is Answer.LOST_AFTER:
            raise _unknown()
        return SLOW_S if answer is Answer.SLOW else FAST_S

    def abort(self) -> None:
        with self._process.asks(_unknown):
            self._check_epoch()
            self._topic.end(State.ABORTED)

    def discard(self) -> None:
        self._queued = []

    def _check_epoch(self) -> None:
        if self._topic.epoch != self._epoch:
            raise Fenced("MR-3003", "the model coordinator knows a newer producer epoch")


class ModelPartition:
    """A reader with read_committed."""

    def __init__(self, topic: ModelTopic, process: Process) -> None:
        self._topic = topic
        self._process = process

    def all_ends(self) -> Ends:
        with self._process.asks(_away):
            return Ends(self._topic.low, self._topic.stable, self._topic.high)

    def stable_end(self) -> int:
        with self._process.asks(_away):
            return self._topic.stable

    def low_end(self) -> int:
        with self._process.asks(_away):
            return self._topic.low

    def read(self, start: int, stop: int) -> list[TopicRecord]:
        with self._process.asks(_away):
            return self._topic.committed(start, stop)

    def next_record(self, offset: int, *, timeout_s: float) -> TopicRecord | None:
        with self._process.asks(_away):
            return next(iter(self._topic.committed(offset, self._topic.high)), None)

    def close(self) -> None:
        pass


class ModelAdmin:
    """The settings and offsets of the topic."""

    def __init__(self, topic: ModelTopic, process: Process) -> None:
        self._topic = topic
        self._process = process

    def settings(self) -> TopicSettings | None:
        with self._process.asks(_away):
            return (
                TopicSettings(1, "delete", RECORD_BYTES_MAX, 3, 2, -1)
                if self._topic.exists
                else None
            )

    def create(self, record_bytes_max: int) -> None:
        with self._process.asks(_away):
            self._topic.exists = True


@dataclass(frozen=True)
class ModelDriver:
    """``producer.publish.driver.Driver`` for one process."""

    topic: ModelTopic
    process: Process

    def admin(self) -> ModelAdmin:
        return ModelAdmin(self.topic, self.process)

    def partition(self) -> ModelPartition:
        return ModelPartition(self.topic, self.process)

    def transactions(self, record_bytes_max: int) -> ModelTransactions:
        return ModelTransactions(self.topic, self.process)
