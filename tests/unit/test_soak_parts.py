"""The soak's parts: decisions by seed, what counts as which kill, what is kept of a failure."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path

import pytest

from deploy.workload.ledger import _Writer
from deploy.workload.ledger_ddl import LedgerDdl
from deploy.workload.ledger_parts import LedgerCounts
from tests.fault.test_soak import keep_logs, kept_folder
from tests.soak import LIVES_S, REGISTRY, Death, History, absences, lives, pairs

DECISIONS = 100
SERVERS = ("kafka", "zookeeper", "replica 1", "target")
ROOT = Path(__file__).parents[2]
TELL = "from tests.unit.test_soak_parts import SCHEDULES; print({name: drawn(7) for name, drawn in SCHEDULES.items()})"


class Statements:
    """A connection to a server that says to everything that it is done; ``told`` is what it was asked."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.ending = threading.Event()

    def cursor(self) -> "Statements":
        """Itself."""
        return self

    def execute(self, sql: str, arguments: object = ()) -> int:
        """One row was changed."""
        self._tell((sql, arguments))
        return 1

    def executemany(self, sql: str, arguments: object) -> None:
        """All were."""
        self._tell((sql, arguments))

    def fetchall(self) -> list[tuple[int, int]]:
        """One row."""
        return [(1, 500)]

    def commit(self) -> None:
        """Done."""
        self._tell("COMMIT")

    def rollback(self) -> None:
        """Done."""
        self._tell("ROLLBACK")

    def close(self) -> None:
        """Nothing."""

    def _tell(self, asked: object) -> None:
        self.told.append(asked)
        if len(self.told) >= 20 * DECISIONS:
            self.ending.set()


def _written(seed: int) -> list[object]:
    server = Statements()
    writer = _Writer(server, number=1, seed=seed, counts=LedgerCounts())
    writer.run(float("inf"), 0.0, server.ending)
    return server.told


def _altered(seed: int) -> list[object]:
    server = Statements()
    LedgerDdl(server, seed=seed, counts=LedgerCounts()).run(float("inf"), 0.0, server.ending)
    return server.told


def _of(name: str, decide: Callable[[int, str], Iterator[object]]) -> Callable[[int], list[object]]:
    return lambda seed: list(islice(decide(seed, name), DECISIONS))


SCHEDULES: Mapping[str, Callable[[int], list[object]]] = {
    **{name: _of(name, lives) for name in LIVES_S},
    **{name: _of(name, absences) for name in (REGISTRY, *SERVERS)},
    "pairs": lambda seed: list(islice(pairs(seed, SERVERS), DECISIONS)),
    "a writer of the ledger": _written,
    "DDL of the ledger": _altered,
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_same_seed_decides_the_same(name: str) -> None:
    """Of each victim for itself, whatever the others do, and of the ledger; another seed decides otherwise."""
    drawn = SCHEDULES[name](7)
    assert len(drawn) >= DECISIONS
    assert SCHEDULES[name](7) == drawn
    assert SCHEDULES[name](8) != drawn


def test_another_process_decides_the_same() -> None:
    """Who replays a seed: nothing hangs on the order of a set, which is another in every process."""
    environment = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)}
    told = subprocess.run(
        (sys.executable, "-c", TELL),
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == str({name: drawn(7) for name, drawn in SCHEDULES.items()})


def test_each_victims_decisions_are_its_own() -> None:
    """Two that are of one kind do not do the same at the same time."""
    drawn = [str(SCHEDULES[name](7)) for name in SCHEDULES]
    assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize("name", LIVES_S)
def test_a_victim_is_armed_half_of_the_time(name: str) -> None:
    """At many a point."""
    armed = [life for life in islice(lives(7, name), DECISIONS) if life.fault]
    assert 20 < len(armed) < 80
    assert len({life.fault for life in armed}) > 3


def test_pairs_are_of_any_two_but_never_of_servers_alone() -> None:
    """A process of the service with another, or with each of the servers."""
    drawn = list(islice(pairs(7, SERVERS), DECISIONS))
    assert {pair.first for pair in drawn} == set(LIVES_S)
    assert {pair.second for pair in drawn} == {*LIVES_S, *SERVERS}
    assert all(pair.first != pair.second for pair in drawn)


def test_kills_are_counted_by_their_kind(tmp_path: Path) -> None:
    """At a point or not; with another in one instant, or near it by chance; before a task ran again, or behind it."""
    history = History(tmp_path / "deaths.jsonl")
    history.add("worker", "after 0.9 s", is_recovering=True)
    history.add("apply", "apply.before_mark:kill@1")
    history.add("kafka", "killed")
    history.add("worker", "publisher.after_begin:raise@3,publisher.before_renew:kill@2")
    history.add("worker", "with apply", is_recovering=True)
    history.add("apply", "with worker")
    assert (history.at_points, history.together, history.recovering) == (2, 1, 2)
    assert history.counts == {"worker": 3, "apply": 2, "kafka": 1}
    kept = [json.loads(line) for line in history.path.read_text().splitlines()]
    assert [Death(**line) for line in kept] == history.deaths


def test_a_replay_takes_nothing_from_the_run_before(tmp_path: Path) -> None:
    """Each run has a folder of its own, with the log of every process in it."""
    stack = tmp_path / "stack"
    for name in ("worker", "source/primary"):
        (stack / name).mkdir(parents=True)
        (stack / name / "log").write_text(name)
    first, second = (kept_folder(tmp_path / "soak", "7-mysql") for _ in range(2))
    assert first != second
    keep_logs(stack, first)
    assert {path.name: path.read_text() for path in first.iterdir()} == {
        "worker.log": "worker",
        "source-primary.log": "source/primary",
    }
    assert list(second.iterdir()) == []
