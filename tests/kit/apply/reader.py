"""Apply workers without Spark: the real runner and real target transactions; this process reads the topic itself."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import cast

from millrace.consumer.spark.session import SparkDriver
from millrace.consumer.task.runner import ApplyRunner
from millrace.drivers.kafka.reader import TopicReader, TopicRecord
from millrace.errors import MillraceError
from millrace.schemas.documents import TopicAddress
from millrace.zk.tree.store import Store
from tests.kit.apply.local import LocalRecords

Process = Callable[[LocalRecords], None]


def runner_without_spark(store: Store) -> ApplyRunner:
    """Runs apply tasks of small micro-batches."""
    return ApplyRunner(cast(SparkDriver, _Driver()), store)


class _Driver:
    """The part of Spark's driver that a run uses."""

    def query(self, task: str, address: TopicAddress, *, offset: int, process: Process) -> "_Query":
        return _Query(address, max(offset, 0), process)


class ThreadQuery:
    """Micro-batches in a thread; like Spark's query it can be stopped but not interrupted."""

    def __init__(self, target: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=target, name="query", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def is_asking(self) -> bool:
        """Whether the broker owes an answer: never here."""
        return False

    def stop(self) -> None:
        """Wait for the end of the thread."""
        self._thread.join()


class _Query(ThreadQuery):
    """Reads a topic; each chunk of new records is a micro-batch."""

    def __init__(self, address: TopicAddress, offset: int, process: Process) -> None:
        self._address = address
        self._offset = offset
        self._process = process
        self._stop = threading.Event()
        super().__init__(self._read)

    def _read(self) -> None:
        """Read until ``stop`` or until a micro-batch fails; the run reports that error."""
        reader = TopicReader(self._address.brokers, self._address.topic)
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
    """Parts with consecutive offsets; between two parts a Kafka transaction ends."""
    part: list[TopicRecord] = []
    for record in chunk:
        if part and record.offset != part[-1].offset + 1:
            yield part
            part = []
        part.append(record)
    if part:
        yield part
