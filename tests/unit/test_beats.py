"""The latency probe counts every beat, from the acknowledged COMMIT to visibility."""

import threading
import time
from collections.abc import Sequence

import pytest

from millrace.deploy.workload.beats import Arrivals, percentile, watch_target, write_beats

DEADLINE_S = 20.0


class Rows:
    """A PEP 249 connection to a table of beats. ``shown`` holds the answers to the SELECTs, in order."""

    def __init__(self, shown: Sequence[Sequence[int]] = ()) -> None:
        self.statements: list[str] = []
        self.committed_s: list[float] = []
        self.is_drained = threading.Event()
        self._shown = list(shown)

    def cursor(self) -> "Rows":
        return self

    def execute(self, statement: str, arguments: Sequence[object] = ()) -> int:
        self.statements.append(statement % tuple(arguments))
        return 1

    def fetchall(self) -> list[tuple[int]]:
        if not self._shown:
            self.is_drained.set()
            return []
        return [(beat,) for beat in self._shown.pop(0)]

    def commit(self) -> None:
        self.committed_s.append(time.monotonic())
        if len(self.committed_s) == 3:
            self.is_drained.set()

    def rollback(self) -> None:
        """Do nothing: it is not used."""

    def close(self) -> None:
        """Do nothing: nothing is open."""


def test_beat_latency_starts_at_the_acknowledged_commit() -> None:
    """The time of the statement belongs to the source."""
    source = Rows()
    acknowledged: dict[int, float] = {}
    with write_beats(acknowledged, lambda: source, interval_s=0.0):
        assert source.is_drained.wait(DEADLINE_S)
    assert len(acknowledged) == len(source.committed_s)
    for beat, committed_s in enumerate(source.committed_s, start=1):
        assert acknowledged[beat] >= committed_s


def test_every_beat_of_a_poll_counts() -> None:
    """Beats that become visible together are all dated, even one that a lane commits late."""
    target = Rows([(), (1, 2, 4), (3, 4), (5,)])
    arrivals = Arrivals(dict.fromkeys(range(1, 6), time.monotonic()))
    with watch_target(arrivals, lambda: target):
        assert target.is_drained.wait(DEADLINE_S)
    assert arrivals.missing() == []
    assert len(arrivals.latencies_ms()) == 5
    asked = [statement for statement in target.statements if "SELECT" in statement]
    assert asked[1].endswith("beat > 0")
    assert asked[2].endswith("beat > 2"), "beat 3 was not there yet"


def test_target_observer_reads_only_beats() -> None:
    """Each poll is one statement by primary key; queries of information_schema would slow the target."""
    target = Rows([(1,)])
    with watch_target(Arrivals({1: 0.0}), lambda: target):
        assert target.is_drained.wait(DEADLINE_S)
    assert {statement.partition(" WHERE")[0] for statement in target.statements} == {
        "SET autocommit = 1",
        "SELECT beat FROM beats",
    }


def test_warm_up_beats_are_ignored() -> None:
    """The acknowledged COMMIT decides, not the arrival."""
    arrivals = Arrivals({1: 10.0, 2: 20.0, 3: 30.0})
    arrivals.add([1, 2, 3], 31.0)
    assert arrivals.latencies_ms(since_s=20.0, until_s=30.0) == [11_000.0]


def test_beat_that_does_not_arrive_is_reported_missing() -> None:
    """It gives no latency."""
    arrivals = Arrivals({1: 10.0, 2: 20.0})
    arrivals.add([1], 11.0)
    assert arrivals.missing() == [2]
    assert arrivals.latencies_ms() == [1_000.0]
    observer = watch_target(arrivals, Rows)
    assert not observer.wait_complete(timeout_s=0.0)


def test_observer_raises_the_error_that_stopped_it() -> None:
    """A lost connection must not look like a quiet target."""

    def refuse() -> Rows:
        raise ConnectionError("no route")

    observer = watch_target(Arrivals({1: 0.0}), refuse)
    with pytest.raises(ConnectionError, match="no route"), observer:
        assert not observer.wait_complete(DEADLINE_S)


def test_percentile_is_a_measured_value() -> None:
    """The method is nearest rank."""
    assert percentile([], 0.5) is None
    assert percentile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.0
    assert percentile([float(n) for n in range(1, 101)], 0.99) == 99.0
