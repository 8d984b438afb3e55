"""The reader of a topic for apply, on a scripted driver: limits, the end of the topic, errors, positions."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from millrace.consumer.records.pieces import Size
from millrace.consumer.records.stream import CHUNK_RECORDS, TopicStream
from millrace.drivers.kafka import reader as reading
from millrace.errors import Retryable
from millrace.schemas.documents import Brokers
from millrace.schemas.record.framing import frame

LARGE = Size(1 << 20, 1 << 30)


@dataclass(frozen=True)
class _Message:
    at: int
    content: bytes | None = b"record"
    failure: KafkaError | None = None

    def error(self) -> KafkaError | None:
        return self.failure

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes | None:
        return self.content


END = _Message(-1, None, KafkaError(KafkaError._PARTITION_EOF))


@dataclass
class _Driver:
    """A consumer with these messages; None is a moment without any, an exception is raised."""

    waiting: list[_Message | Exception | None]
    asked: list[int] = field(default_factory=list)
    assigned: list[int] = field(default_factory=list)

    def assign(self, parts: list[TopicPartition]) -> None:
        self.assigned += [part.offset for part in parts]

    def consume(self, count: int, _: float) -> list[_Message]:
        self.asked.append(count)
        found: list[_Message] = []
        while self.waiting and len(found) < count:
            message = self.waiting.pop(0)
            if isinstance(message, Exception):
                raise message
            if message is None:
                break
            found.append(message)
        return found

    def close(self) -> None:
        """Nothing is open."""


Made = Callable[..., tuple[TopicStream, _Driver]]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    """Make a reader with these messages."""

    def make(*waiting: _Message | Exception | None) -> tuple[TopicStream, _Driver]:
        driver = _Driver([*waiting])
        monkeypatch.setattr(reading, "Consumer", lambda *_, **__: driver)
        return TopicStream(Brokers("k1:9092"), "shop"), driver

    return make


def _records(*offsets: int, content: bytes = b"record") -> list[Any]:
    return [_Message(offset, content) for offset in offsets]


def test_taken_records_are_those_of_the_topic(made: Made) -> None:
    """Offsets have gaps, where the topic has markers of transactions; a value may be empty or missing."""
    reader, _ = made(_Message(3, b"a"), _Message(5, b""), _Message(6, None), _Message(9, b"bcd"))
    taken = reader.take(LARGE, wait_s=0.0)
    assert taken is not None
    assert list(taken.offsets) == [3, 5, 6, 9]
    assert [taken.values.value(number) for number in range(4)] == [b"a", b"", b"", b"bcd"]
    assert not taken.is_end
    assert reader.take(LARGE, wait_s=0.0) is None


def test_end_of_the_topic_is_reported_with_the_last_records(made: Made) -> None:
    """An end that more records follow is none."""
    reader, driver = made(*_records(1, 2), END, *_records(3), None, *_records(4), END)
    first = reader.take(LARGE, wait_s=0.0)
    assert first is not None
    assert list(first.offsets) == [1, 2, 3, 4]
    assert first.is_end
    assert driver.waiting == []
    reader, _ = made(END, *_records(1))
    after = reader.take(LARGE, wait_s=0.0)
    assert after is not None
    assert not after.is_end


RESOLVED = frame(7, b"\x10resolved and its fields")


def test_resolved_record_that_nothing_follows_is_the_end(made: Made) -> None:
    """Under steady traffic the broker never reports an end: a new commit answers each request."""
    reader, driver = made(*_records(1), *_records(2, content=RESOLVED), None, *_records(4))
    taken = reader.take(LARGE, wait_s=0.0)
    assert taken is not None
    assert (list(taken.offsets), taken.is_end) == ([1, 2, 4], False), "more came meanwhile"
    driver.waiting += [*_records(5), *_records(6, content=RESOLVED)]
    taken = reader.take(LARGE, wait_s=0.0)
    assert taken is not None
    assert (list(taken.offsets), taken.is_end) == ([5, 6], True)
    driver.waiting += [*_records(8), *_records(9, content=RESOLVED)]
    full = reader.take(Size(2, 1 << 30), wait_s=0.0)
    assert full is not None
    assert not full.is_end, "more may wait"


def test_end_alone_is_no_record(made: Made) -> None:
    """The applier lingers and then ends its turn."""
    reader, _ = made(END)
    assert reader.take(LARGE, wait_s=0.0) is None


@pytest.mark.parametrize("rows", [1, 2, 1000, CHUNK_RECORDS + 1])
def test_no_more_records_than_asked_are_taken(made: Made, rows: int) -> None:
    """The rest stays for the next call."""
    reader, driver = made(*_records(*range(2 * CHUNK_RECORDS)))
    taken = reader.take(Size(rows, 1 << 30), wait_s=0.0)
    assert taken is not None
    assert len(taken.offsets) == rows
    assert max(driver.asked) <= CHUNK_RECORDS
    again = reader.take(Size(1, 1 << 30), wait_s=0.0)
    assert again is not None
    assert list(again.offsets) == [rows]


def test_bytes_of_a_window_are_bounded(made: Made) -> None:
    """By the average of the records so far; one record is always taken, however large."""
    reader, _ = made(*_records(*range(100), content=bytes(1000)))
    taken = reader.take(Size(1000, 10_000), wait_s=0.0)
    assert taken is not None
    assert len(taken.values.payload) == 10_000
    reader, _ = made(*_records(1, 2, content=bytes(1000)))
    large = reader.take(Size(1000, 10), wait_s=0.0)
    assert large is not None
    assert list(large.offsets) == [1]


def test_records_read_ahead_are_kept_at_their_offset(made: Made) -> None:
    """The next turn begins at the mark, which is usually where the last one ended."""
    reader, driver = made(*_records(3, 5))
    reader.seek(-2)
    reader.take(LARGE, wait_s=0.0)
    reader.seek(6)
    assert driver.assigned == [OFFSET_BEGINNING]
    reader.seek(4)
    reader.seek(4)
    assert driver.assigned == [OFFSET_BEGINNING, 4, 4], "nothing was taken there yet"


@pytest.mark.parametrize(
    "failure",
    [
        _Message(-1, None, KafkaError(KafkaError.OFFSET_OUT_OF_RANGE)),
        KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN)),
    ],
    ids=["of a message", "of the call"],
)
def test_error_of_the_broker_is_retried_from_the_offset(
    made: Made, failure: _Message | Exception
) -> None:
    """Records that were read before the error are read again."""
    reader, driver = made(*_records(3), *_records(4, 5), None, failure)
    reader.seek(3)
    with pytest.raises(Retryable, match="topic shop at k1:9092") as caught:
        reader.take(LARGE, wait_s=0.0)
    assert caught.value.code == "MR-5052"
    reader.seek(3)
    assert driver.assigned == [3, 3]
