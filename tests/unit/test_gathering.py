"""Which batches share a Kafka transaction, and when they are released."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from millrace.producer.task import batching
from millrace.producer.task.batching import Published, publish_together
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.progress import OpenTransaction, Progress

ROWS = 10
COMMIT_MS = 1_764_000_000_000
GTIDS = parse_gtid_set(Flavour.MARIADB, "0-1-100")


class _Scene:
    """A publisher, a pipeline and a converter that write down what is done. ``waiting`` is in line."""

    def __init__(
        self, waiting: list[Any], *, caught_up: Callable[[], bool] = lambda: False
    ) -> None:
        self.done: list[str] = []
        self.waiting = waiting
        self.caught_up = caught_up
        self.pipeline: Any = SimpleNamespace(take_more=self._take_more)
        self.publisher: Any = SimpleNamespace(
            add=lambda batch: self.done.append(f"add {batch.name}"),
            commit=lambda: self.done.append("commit"),
        )

    @property
    def is_caught_up(self) -> bool:
        """The converter's."""
        return self.caught_up()

    def _take_more(self, *, timeout_s: float) -> Any:
        return self.waiting.pop(0) if self.waiting else None

    def publish(self, first: Any) -> Published:
        """Publish it together with those in line."""
        scene: Any = self
        return publish_together(self.publisher, first, self.pipeline, scene)


def _row(size: int, commit_ms: int) -> bytes:
    """Return a framed row record of this size: its head and its end (``schemas.record.row_end``)."""
    gtid = b"0-1-101"
    end = [b"\2", b"\2c", _varint(commit_ms), _varint(len(gtid)), gtid, _varint(1), b"\1"]
    return b"\0\0\0\0\1\0".ljust(size - len(b"".join(end)), b"\0") + b"".join(end)


def _varint(number: int) -> bytes:
    zigzag, octets = number << 1, []
    while zigzag > 0x7F:
        octets.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*octets, zigzag])


class _Batch:
    """Ten records of 100 bytes; ``release`` notes what it frees."""

    def __init__(self, name: str, done: list[str], *, is_open: bool = False) -> None:
        self.name, self.rows, self.coordinates = name, ROWS, name
        ends = np.arange(ROWS)[:, None] * 100
        self.bounds = np.hstack([ends, ends + 8, ends + 8, ends + 100]).astype(np.int64)
        records = b"".join(b"k" * 8 + _row(92, COMMIT_MS + number) for number in range(ROWS))
        self.buffer = np.frombuffer(records, np.uint8)
        opened = OpenTransaction("0-1-101", 3) if is_open else None
        self.progress = Progress(GTIDS, opened, 0)
        self.release = _Release(name, done)


class _Release:
    def __init__(self, name: str, done: list[str]) -> None:
        self._name, self._done = name, done

    def recycle(self) -> None:
        self._done.append(f"recycle {self._name}")

    def __call__(self) -> None:
        self._done.append(f"release {self._name}")


def _scene(*names: str, caught_up: Callable[[], bool] = lambda: False) -> _Scene:
    scene = _Scene([], caught_up=caught_up)
    scene.waiting += [_Batch(name, scene.done) for name in names]
    return scene


@pytest.fixture(autouse=True)
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty line ends the wait at once."""
    monkeypatch.setattr(batching, "TRANSACTION_S_MAX", 0.01)


def test_backlog_shares_a_kafka_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """A buffer is freed when the next batch is queued, and files are released only after the commit."""
    monkeypatch.setattr(batching, "TRANSACTION_S_MAX", 60.0)
    scene = _scene("b", "c")
    scene.caught_up = lambda: not scene.waiting
    scene.publish(_Batch("a", scene.done))
    assert scene.done == [
        *("add a", "add b", "recycle a", "add c", "recycle b", "commit"),
        *("release a", "release b", "release c"),
    ]


def test_caught_up_task_commits_each_batch_at_once() -> None:
    """A row does not wait for those after it."""
    scene = _scene("b", caught_up=lambda: True)
    scene.publish(_Batch("a", scene.done))
    assert scene.done == ["add a", "commit", "release a"]


def test_open_source_transaction_is_not_split_when_caught_up() -> None:
    """Its rest is in the relay log: no row is published before the end of its source transaction is there."""
    scene = _scene("b", caught_up=lambda: True)
    scene.publish(_Batch("a", scene.done, is_open=True))
    assert scene.done[:2] == ["add a", "add b"]


@pytest.mark.parametrize("limit", ["TRANSACTION_ROWS_MAX", "TRANSACTION_BYTES_MAX"])
def test_kafka_transaction_is_bounded(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By rows and by bytes, whichever comes first: the client holds a copy of all of it."""
    monkeypatch.setattr(batching, "BATCH_ROWS_MAX", ROWS)
    monkeypatch.setattr(batching, "BATCH_BYTES_MAX", 100 * ROWS)
    monkeypatch.setattr(batching, limit, (100 if "BYTES" in limit else 1) * 3 * ROWS)
    scene = _scene("b", "c", "d", "e")
    scene.publish(_Batch("a", scene.done))
    assert [step for step in scene.done if step[0] in "ac"] == ["add a", "add b", "add c", "commit"]


def test_kafka_transaction_is_bounded_in_time() -> None:
    """A converter that has more to read and makes no batch does not keep readers waiting."""
    scene = _scene()
    scene.publish(_Batch("a", scene.done))
    assert scene.done == ["add a", "commit", "release a"]


def test_commit_time_is_that_of_the_last_row() -> None:
    """The lag of the task is measured by it. A batch of control records alone has none."""
    scene = _Scene([])
    batch = _Batch("a", scene.done)
    assert scene.publish(batch).commit_ms == COMMIT_MS + ROWS - 1
    batch.rows = 0
    assert scene.publish(batch).commit_ms == 0
