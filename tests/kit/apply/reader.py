"""Apply workers without Spark: the real runner and real target transactions, on records that its own process reads."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import cast

from consumer.apply import ApplyRunner
from consumer.spark import SparkDriver
from consumer.topic.kafka import TopicReader, TopicRecord
from millrace.errors import MillraceError
from schemas.documents import TopicAddress
from tests.kit.apply.local import LocalRecords
from zk.tree.store import Store

Process = Callable[[LocalRecords], None]


def runner_without_spark(store: Store) -> ApplyRunner:
    """Runs apply tasks of small micro-batches."""
    return ApplyRunner(cast(SparkDriver, _Driver()), store)


class _Driver:
    """Spark's, as far as a run asks it."""

    def query(self, task: str, address: TopicAddress, *, offset: int, process: Process) -> "_Query":
        return _Query(address, max(offset, 0), process)


class ThreadQuery:
    """Micro-batches in a thread; as Spark's, it can be stopped, not interrupted."""

    def __init__(self, target: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=target, name="query", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def is_asking(self) -> bool:
        """Of a broker that does not answer: never."""
        return False

    def stop(self) -> None:
        """Wait for its end."""
        self._thread.join()


class _Query(ThreadQuery):
    """A topic read; whatever has come is a micro-batch."""

    def __init__(self, address: TopicAddress, offset: int, process: Process) -> None:
        self._address = address
        self._offset = offset
        self._process = process
        self._stop = threading.Event()
        super().__init__(self._read)

    def _read(self) -> None:
        """Until it is stopped, or a micro-batch fails: that its run knows."""
        reader = TopicReader(self._address.bootstrap, self._address.topic)
        try:
            for chunk in reader.follow(self._offset, self._stop.is_set):
                for records in _without_gaps(chunk):
                    self._process(
                        LocalRecords([r.value for r in records], records[0].offset, False)
                    )
        except MillraceError:
            return
        finally:
            reader.close()

    def stop(self) -> None:
        self._stop.set()
        super().stop()


def _without_gaps(chunk: Sequence[TopicRecord]) -> Iterator[list[TopicRecord]]:
    """Parts of offsets one behind the other: between two a Kafka transaction ends."""
    part: list[TopicRecord] = []
    for record in chunk:
        if part and record.offset != part[-1].offset + 1:
            yield part
            part = []
        part.append(record)
    if part:
        yield part
