"""The publisher reads back while other clients remove records; the consumer's answers are scripted."""

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from millrace.drivers.kafka import reader
from millrace.drivers.kafka.producer import WRITING
from millrace.drivers.kafka.reader import TopicReader
from millrace.errors import Retryable
from millrace.schemas.documents import Brokers
from tests.kit.kafka_topics import log_end

LOW, STABLE = 50, 60


class _Message:
    def __init__(self, offset: int, error: KafkaError | None = None) -> None:
        self._offset, self._error = offset, error

    def error(self) -> KafkaError | None:
        return self._error

    def offset(self) -> int:
        return self._offset

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"value"

    def timestamp(self) -> tuple[int, int]:
        return 0, 0


class _Consumer:
    """A consumer of a partition with ``LOW`` to ``STABLE - 1``; ``before`` precedes its records."""

    def __init__(self, before: list[_Message]) -> None:
        self.seeks: list[int] = []
        self._before = before

    def assign(self, partitions: list[TopicPartition]) -> None:
        if self.seeks:  # what was fetched for the earlier place is dropped, but for its errors
            self._before = [one for one in self._before if one.error()]
        self.seeks.append(partitions[0].offset)

    def get_watermark_offsets(self, *_: object) -> tuple[int, int]:
        return LOW, STABLE

    def consume(self, _: int, __: float) -> list[_Message]:
        if self._before:
            return [self._before.pop(0)]
        at = self.seeks[-1]
        return [_Message(at) if LOW <= at < STABLE else _out_of_range(at)]


def _out_of_range(offset: int) -> _Message:
    return _Message(offset, KafkaError(KafkaError._AUTO_OFFSET_RESET, "not there"))


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[TopicReader, _Consumer]]:
    """Return a partition whose consumer gives these answers first."""

    def make(*before: _Message) -> tuple[TopicReader, _Consumer]:
        consumer = _Consumer(list(before))
        monkeypatch.setattr(reader, "Consumer", lambda *_, **__: consumer)
        return TopicReader(Brokers("k1:9092"), "topic", errors=WRITING), consumer

    return make


Reading = Callable[..., tuple[TopicReader, _Consumer]]


def test_removed_records_are_skipped(reading: Reading) -> None:
    """Records before the log's start are removed: reading continues there."""
    partition, consumer = reading()
    record = partition.next_record(20, timeout_s=1.0)
    assert record is not None
    assert (record.offset, consumer.seeks) == (LOW, [20, LOW])


def test_error_for_an_earlier_offset_is_ignored(reading: Reading) -> None:
    """The error of the earlier offset arrives when the reader is already at the record."""
    partition, consumer = reading(_out_of_range(20), _out_of_range(20))
    record = partition.next_record(55, timeout_s=1.0)
    assert record is not None
    assert (record.offset, consumer.seeks) == (55, [55, 55, 55])


def test_reader_asks_for_a_damaged_batch_again(reading: Reading) -> None:
    """A client that continues after a damaged batch would return the next record as if it was the one asked for."""
    damage = KafkaError(KafkaError._BAD_MSG, "failed CRC32C check")
    partition, consumer = reading(_Message(51), _Message(52, damage), _Message(53))
    assert partition.next_record(51, timeout_s=1.0) is not None
    with pytest.raises(Retryable):
        partition.next_record(52, timeout_s=1.0)
    record = partition.next_record(52, timeout_s=1.0)
    assert record is not None
    assert (record.offset, consumer.seeks) == (52, [51, 52])


def test_offset_after_the_end_is_missing(reading: Reading) -> None:
    """The topic was recreated."""
    partition, _ = reading()
    with pytest.raises(Retryable) as caught:
        partition.next_record(STABLE + 5, timeout_s=1.0)
    assert caught.value.code == "MR-3016"


def test_tests_ask_for_the_end_of_a_topic_again() -> None:
    """A client that waits for a broker answers late, or with -1001; a slow machine must not fail a test."""
    answers: list[int | None] = [None, -1001, 7]

    class Admin:
        """It gives these answers; None: none."""

        def list_topics(self, topic: str, timeout: float) -> None:
            pass

        def list_offsets(self, asked: dict[TopicPartition, object], **_: object) -> object:
            answer, offset = Future[SimpleNamespace](), answers.pop(0)
            if offset is None:
                answer.set_exception(TimeoutError())
            else:
                answer.set_result(SimpleNamespace(offset=offset))
            return dict.fromkeys(asked, answer)

    assert log_end(cast(AdminClient, Admin()), "shop") == 7
    assert answers == []


@pytest.mark.parametrize("offset", [STABLE + 2, -1001])
def test_missing_answer_about_the_end_is_an_error(
    reading: Callable[..., tuple[TopicReader, _Consumer]],
    offset: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client returns -1001 after its timeout, which would hide an open Kafka transaction."""

    class Admin:
        """It gives this offset."""

        def __init__(self, *_: object, **__: object) -> None:
            pass

        def list_offsets(self, asked: dict[TopicPartition, object], **_: object) -> object:
            answer = Future[SimpleNamespace]()
            answer.set_result(SimpleNamespace(offset=offset))
            return dict.fromkeys(asked, answer)

    monkeypatch.setattr("millrace.drivers.kafka.reader.AdminClient", Admin)
    partition, _ = reading()
    if offset > 0:
        assert partition.all_ends().high == offset
        return
    with pytest.raises(Retryable) as caught:
        partition.all_ends()
    assert caught.value.code == "MR-3001"
