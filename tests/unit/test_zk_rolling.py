"""Restarts of many workers, simulated: the pure placement and the scheduler's clock, without ZooKeeper."""

from collections import Counter
from dataclasses import dataclass, field

import pytest

from millrace.schemas.documents import TaskKind
from millrace.zk.placement.assignment import Assignment, Candidate, Placeable, assign
from millrace.zk.placement.scheduler import ROUND_S, moves_max
from millrace.zk.placement.settling import FORGET_S, SETTLE_S, WAIT_S_MAX, Arrival, arrivals_after

FLEETS = [(8, 40), pytest.param((20, 200), marks=pytest.mark.chaos)]  # workers, sets
RELAYS_LATE_S = 10.0  # a worker names its new relay logs so late


@dataclass
class Fleet:
    """Capture workers, each with the relay logs on its disk, and a scheduler's rounds."""

    names: list[str]
    tasks: list[Placeable]
    now_s: float = 0.0
    alive: dict[str, int] = field(default_factory=dict)  # worker → its registration
    current: dict[str, Assignment] = field(default_factory=dict)
    relays: dict[str, dict[str, float]] = field(default_factory=dict)  # worker → unit → since
    arrivals: dict[str, Arrival] = field(default_factory=dict)
    moves: Counter[str] = field(default_factory=Counter)  # task → its moves
    _registered: int = 0

    def join(self, name: str) -> None:
        """The worker registers, with the relay logs of its earlier lives."""
        self._registered += 1
        self.alive[name] = self._registered

    def leave(self, name: str) -> None:
        """The worker dies; its disk stays."""
        del self.alive[name]

    def settled(self) -> set[str]:
        """The workers that may receive units."""
        return {name for name, one in self.arrivals.items() if one.is_settled(self.now_s)}

    def round(self) -> None:
        """One round of the scheduler, and ``ROUND_S`` pass."""
        self.arrivals = arrivals_after(self.arrivals, self.alive, self.now_s, settle_s=SETTLE_S)
        settled = self.settled()
        workers = {
            name: Candidate(
                kind=TaskKind.CAPTURE,
                is_settled=name in settled,
                relays=frozenset(
                    unit
                    for unit, since_s in self.relays.get(name, {}).items()
                    if self.now_s - since_s >= RELAYS_LATE_S
                ),
            )
            for name in self.alive
        }
        limit = moves_max(self.tasks)
        placed = assign(self.tasks, workers, self.current, moves_max=limit)
        assert placed.moves <= limit
        for task in self.tasks:
            if (found := placed.assigned.get(task.task)) is None:
                continue
            if task.task in self.current and self.current[task.task].worker != found.worker:
                self.moves[task.task] += 1
            self.current[task.task] = found
            self.relays.setdefault(found.worker, {}).setdefault(task.unit, self.now_s)
        self.now_s += ROUND_S

    def rounds(self, seconds: float) -> None:
        """As many rounds as fit."""
        for _ in range(int(seconds / ROUND_S)):
            self.round()

    def places(self) -> dict[str, str]:
        """Task → worker."""
        return {task: found.worker for task, found in self.current.items()}


@pytest.fixture(params=FLEETS, ids=lambda fleet: f"{fleet[0]} workers")
def fleet(request: pytest.FixtureRequest) -> Fleet:
    """Workers with sets, at rest."""
    workers, sets = request.param
    tasks = [Placeable(f"c{n:03}", TaskKind.CAPTURE, f"set:s{n:03}") for n in range(sets)]
    made = Fleet([f"w{n:02}" for n in range(workers)], tasks)
    for name in made.names:
        made.join(name)
    made.rounds(60)
    made.moves.clear()
    return made


@pytest.mark.parametrize("every_s", [4, 10, 30, 120])
def test_rolling_restart_ends_with_each_set_at_its_relay_log(fleet: Fleet, every_s: float) -> None:
    """However fast they follow each other, each set is in the end where its whole relay log is."""
    home = fleet.places()
    assert set(Counter(home.values()).values()) == {len(fleet.tasks) // len(fleet.names)}
    for name in fleet.names:
        fleet.leave(name)
        fleet.rounds(2)
        fleet.join(name)
        fleet.rounds(every_s - 2)
    fleet.rounds(180)
    assert fleet.places() == home


def test_slow_rolling_restart_moves_each_set_away_and_back(fleet: Fleet) -> None:
    """If each worker settles before the next restarts, a set moves twice and no other moves."""
    for name in fleet.names:
        fleet.leave(name)
        fleet.rounds(2)
        fleet.join(name)
        fleet.rounds(30)
    assert set(fleet.moves.values()) == {2}


def test_flapping_worker_receives_units_less_and_less_often(fleet: Fleet) -> None:
    """It restarts every 30 s for an hour. Its own sets soon stay elsewhere, and no set of another worker moves."""
    home = fleet.places()
    others = {task for task, worker in home.items() if worker != "w07"}
    for _ in range(120):
        fleet.leave("w07")
        fleet.rounds(2)
        fleet.join("w07")
        fleet.rounds(28)
    assert not others & fleet.moves.keys()
    assert max(fleet.moves.values()) <= 4
    fleet.rounds(WAIT_S_MAX + 60)
    assert fleet.places() == home


def test_worker_that_stayed_settles_as_soon_as_a_new_one() -> None:
    """The wait doubles with each registration and is short again after ``FORGET_S``."""
    known: dict[str, Arrival] = {}
    waits, now_s = [], 0.0
    for number, pause_s in enumerate((30, 30, 400, 30, FORGET_S, 30)):
        known = arrivals_after(known, {"w": number}, now_s, settle_s=SETTLE_S)
        waits.append(known["w"].wait_s)
        known = arrivals_after(known, {}, now_s + 1, settle_s=SETTLE_S)
        assert not known["w"].is_settled(now_s + FORGET_S)
        now_s += pause_s
    assert waits == [10, 20, 40, 80, 160, 10]
    assert arrivals_after(known, {}, now_s + FORGET_S, settle_s=SETTLE_S) == {}
