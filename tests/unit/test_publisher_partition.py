"""What the publisher reads back, while others remove records: a consumer that says what a test wants."""

from collections.abc import Callable

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, TopicPartition

from millrace.errors import Retryable
from producer.publish.kafka_topic import KafkaPartition

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


class _Consumer:
    """Of a partition that holds ``LOW`` to ``STABLE - 1``; ``before`` comes in front of its records."""

    def __init__(self, before: list[_Message]) -> None:
        self.seeks: list[int] = []
        self._before = before

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.seeks.append(partitions[0].offset)

    def get_watermark_offsets(self, *_: object) -> tuple[int, int]:
        return LOW, STABLE

    def poll(self, _: float) -> _Message:
        if self._before:
            return self._before.pop(0)
        at = self.seeks[-1]
        return _Message(at) if LOW <= at < STABLE else _out_of_range(at)


def _out_of_range(offset: int) -> _Message:
    return _Message(offset, KafkaError(KafkaError._AUTO_OFFSET_RESET, "not there"))


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[KafkaPartition, _Consumer]]:
    """A partition whose consumer says these things first."""

    def make(*before: _Message) -> tuple[KafkaPartition, _Consumer]:
        consumer = _Consumer(list(before))
        monkeypatch.setattr(confluent_kafka, "Consumer", lambda *_, **__: consumer)
        return KafkaPartition({}, "topic"), consumer

    return make


Reading = Callable[..., tuple[KafkaPartition, _Consumer]]


def test_removed_records_are_skipped(reading: Reading) -> None:
    """Records in front of the log's start are gone: reading goes on there."""
    partition, consumer = reading()
    record = partition.next_record(20, timeout_s=1.0)
    assert record is not None
    assert (record.offset, consumer.seeks) == (LOW, [20, LOW])


def test_error_for_an_earlier_offset_is_ignored(reading: Reading) -> None:
    """The word of the place before comes when the reader stands where the record is."""
    partition, consumer = reading(_out_of_range(20), _out_of_range(20))
    record = partition.next_record(55, timeout_s=1.0)
    assert record is not None
    assert (record.offset, consumer.seeks) == (55, [55, 55, 55])


def test_offset_after_the_end_is_missing(reading: Reading) -> None:
    """The topic was made anew."""
    partition, _ = reading()
    with pytest.raises(Retryable) as caught:
        partition.next_record(STABLE + 5, timeout_s=1.0)
    assert caught.value.code == "MR-3016"
