"""A soak: processes and servers killed again and again by a seed, several at once, also while they come up again.

Each victim has lives of its own in a thread, decided by a random sequence of its own made from the seed and its name
(``lives``, ``absences``, ``pairs``): it is started (a service's process half of the time with a random fault point
armed), lives for a while, and is killed, again and again before its task runs. Servers (broker, replica, target,
ZooKeeper) and the registry are killed more rarely; the primary is not: the ledger's writers stand on it. Now and then
two die in one instant. The same seed gives each victim the same sequence of decisions; where in the stream they fall is
the machine's affair.

``history`` holds a line for every death by SIGKILL: when, who, how. It is written as it happens, so it survives the
test. A process that ends in any other way fails the soak.
"""

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from kazoo.handlers.threading import KazooTimeoutError

from deploy.servers.process import ServerProcess, session_members
from deploy.servers.server import Server
from millrace.errors import Retryable
from tests.fixtures.stack import RUNNING_WORDS, FaultStack
from tests.kit.faults.campaign import IN_A_LANE, POINTS, PROVOCATIONS, victim_of

PASSAGE_MAX = 4
ARMED_S = 12.0  # for an armed process to come to its point; then it is killed where it is
LOOK_S = 0.05
LIVES_S = {"worker": (0.2, 9.0), "apply": (2.0, 45.0), "scheduler": (0.5, 20.0)}
TASK_RUNNERS = ("worker", "apply")
REGISTRY = "registry"
SERVER_LIVES_S = (40.0, 120.0)
SERVER_AWAY_S = (0.0, 4.0)
PAIRS = "pairs"
PAIR_EVERY_S = (8.0, 25.0)
WITH = "with "  # begins how one of a pair died


@dataclass(frozen=True, slots=True)
class Life:
    """Of a process of the service, as decided before it begins; ``part``: below 0.3, a part of a driver dies."""

    lives_s: float
    fault: str
    part: float


def lives(seed: int, name: str) -> Iterator[Life]:
    """Without end; the same for the same seed and name."""
    chance = random.Random(f"{seed}/{name}")
    points = [point for point in POINTS if victim_of(point) == name]
    while True:
        lives_s = chance.uniform(*LIVES_S[name])
        fault = _random_fault(chance, points) if chance.random() < 0.5 else ""
        yield Life(lives_s, fault, chance.random())


@dataclass(frozen=True, slots=True)
class Absence:
    """Of a server, or of the registry: how long it lives before, and how long it is away."""

    lives_s: float
    away_s: float


def absences(seed: int, name: str) -> Iterator[Absence]:
    """Without end; the same for the same seed and name."""
    chance = random.Random(f"{seed}/{name}")
    while True:
        yield Absence(chance.uniform(*SERVER_LIVES_S), chance.uniform(*SERVER_AWAY_S))


@dataclass(frozen=True, slots=True)
class Pair:
    """Two that die in one instant, ``wait_s`` behind the pair before; a server among them is away for ``away_s``."""

    wait_s: float
    first: str
    second: str
    away_s: float


def pairs(seed: int, servers: Collection[str]) -> Iterator[Pair]:
    """Without end; at least one of them is a process of the service. The same for the same seed and servers."""
    chance = random.Random(f"{seed}/{PAIRS}")
    while True:
        wait_s = chance.uniform(*PAIR_EVERY_S)
        first = chance.choice(list(LIVES_S))
        second = chance.choice([name for name in (*LIVES_S, *servers) if name != first])
        yield Pair(wait_s, first, second, chance.uniform(*SERVER_AWAY_S))


@dataclass(frozen=True, slots=True)
class Death:
    """``how``: a fault (as armed) that was passed, ``after N s``, ``with OTHER``, or what of the process was killed."""

    at_s: float
    victim: str
    how: str
    is_recovering: bool = False  # it was started after a kill, and no task of its ran yet

    @property
    def is_at_a_point(self) -> bool:
        """Killed at a fault point, not after a time."""
        return ":kill@" in self.how


@dataclass(slots=True)
class History:
    """All deaths, in a file of JSON lines from the first on."""

    path: Path
    began_s: float = field(default_factory=time.monotonic)
    deaths: list[Death] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, victim: str, how: str, *, is_recovering: bool = False) -> None:
        """It died now."""
        at_s = round(time.monotonic() - self.began_s, 2)
        death = Death(at_s, victim, how, is_recovering)
        with self._lock:
            self.deaths.append(death)
            with self.path.open("a") as file:
                file.write(json.dumps(asdict(death)) + "\n")

    @property
    def counts(self) -> Counter[str]:
        """Deaths by victim."""
        return Counter(death.victim for death in self.deaths)

    @property
    def at_points(self) -> int:
        """Deaths at a fault point."""
        return sum(death.is_at_a_point for death in self.deaths)

    @property
    def together(self) -> int:
        """Pairs that died in one instant."""
        return sum(death.how.startswith(WITH) for death in self.deaths) // 2

    @property
    def recovering(self) -> int:
        """Processes that died before a task of theirs ran again."""
        return sum(death.is_recovering for death in self.deaths)


class Soak:
    """Kills everything in ``stack`` by ``seed`` between ``begin`` and ``calm``."""

    def __init__(self, stack: FaultStack, *, seed: int, history: History) -> None:
        self._stack = stack
        self._history = history
        self._servers: dict[str, Server] = {
            name: server for name, server in stack.servers.items() if name != "primary"
        }
        self._lives = {name: lives(seed, name) for name in LIVES_S}
        self._absences = {name: absences(seed, name) for name in (REGISTRY, *self._servers)}
        self._pairs = pairs(seed, self._servers)
        self._logs: dict[str, Callable[[], list[str]]] = {}  # of each life, from its begin
        self._shot: list[ServerProcess] = []  # with another, in one instant
        self._killing = threading.Lock()  # around the end of a process, which is told once
        self._busy = {name: threading.Lock() for name in self._servers}  # it is dead, or starts
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []
        self._started: set[str] = set()  # servers that a life has started

    def begin(self) -> None:
        """Kill from now on."""
        self._stop.clear()
        begun: list[Callable[[], None]] = [
            *(partial(self._live, name) for name in LIVES_S),
            self._keep_registry,
            self._kill_pairs,
            *(partial(self._serve, name, server) for name, server in self._servers.items()),
        ]
        self._threads = [threading.Thread(target=self._guard, args=(life,)) for life in begun]
        for thread in self._threads:
            thread.start()

    def calm(self) -> None:
        """Everything runs, and nothing is killed any more; raises what went wrong in a life."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        # what a thread has started dies with it (PR_SET_PDEATHSIG): everything is started once more from here
        for name in self._started:
            self._servers[name].kill()
            self._servers[name].start()
        self._started.clear()
        for name in (REGISTRY, *LIVES_S):
            self._stack.end(name)
            self._stack.launch(name)
        if self._failures:
            raise self._failures[0]

    def _guard(self, life: Callable[[], None]) -> None:
        try:
            life()
        except BaseException as failure:  # noqa: BLE001 - raised by calm
            self._failures.append(failure)

    def _live(self, name: str) -> None:
        """A process of the service: started, armed or not, and killed, until calm; then it is started for good."""
        while not self._stop.is_set():
            life = next(self._lives[name])
            if name in TASK_RUNNERS:
                self._logs[name] = self._stack.log_from_here(name)
            process = self._stack.launch(name, fault=life.fault)
            lives_s = max(life.lives_s, ARMED_S) if life.fault else life.lives_s
            deadline_s = time.monotonic() + lives_s
            while process.is_alive() and time.monotonic() < deadline_s and not self._stop.is_set():
                self._stop.wait(LOOK_S)
            with self._killing:
                is_half = self._end(name, process, life, f"after {lives_s:.1f} s")
            if is_half:
                self._stop.wait(life.lives_s)
            process.kill()
            with suppress(Retryable, KazooTimeoutError):  # while ZooKeeper is away nobody needs it
                self._stack.expire(process)

    def _end(self, name: str, process: ServerProcess, life: Life, how: str) -> bool:
        """Kill it, unless something else did; True where only a part of it was."""
        if process in self._shot:  # and told
            return False
        if not process.is_alive():
            if not life.fault or process.exit_status != -signal.SIGKILL:
                raise AssertionError(process.failure(f"ended by itself, {life}"))
            self._died(name, life.fault)
            return False
        if name == "apply" and life.part < 0.3 and (pid := _one_of(process, life.part)):
            os.kill(pid, signal.SIGKILL)  # the JVM or a Python worker: the driver has to notice
            self._died(name, f"one of its processes {how}")
            return True
        self._died(name, how)
        process.kill()
        return False

    def _died(self, name: str, how: str) -> None:
        """Tell it. A process that has no tasks is never one that recovers."""
        log = self._logs.get(name)
        is_recovering = log is not None and not any(RUNNING_WORDS in line for line in log())
        self._history.add(name, how, is_recovering=is_recovering)

    def _kill_pairs(self) -> None:
        """Two that live; a server is started again."""
        for pair in self._pairs:
            if self._stop.wait(pair.wait_s):
                return
            if pair.second not in self._servers:
                self._kill_pair(pair.first, pair.second)
                continue
            with self._busy[pair.second]:
                if self._kill_pair(pair.first, pair.second):
                    self._stop.wait(pair.away_s)
                    self._servers[pair.second].start()
                    self._started.add(pair.second)

    def _kill_pair(self, first: str, second: str) -> bool:
        """Whether both lived."""
        with self._killing:
            services = [self._stack.services[name] for name in (first, second) if name in LIVES_S]
            servers = [self._servers[name] for name in (first, second) if name in self._servers]
            is_up = all(each.is_alive() for each in services) and all(
                each.is_alive() for each in servers
            )
            if not is_up:
                return False
            self._shot += services
            self._stack.kill_together(first, second)
            self._died(first, f"{WITH}{second}")
            self._died(second, f"{WITH}{first}")
            return True

    def _keep_registry(self) -> None:
        """Killed and started again; also when it ended for want of a broker."""
        for absence in self._absences[REGISTRY]:
            if self._stop.wait(absence.lives_s):
                return
            process = self._stack.services[REGISTRY]
            if process.is_alive():
                process.kill()
                self._history.add(REGISTRY, "killed")
                self._stop.wait(absence.away_s)
            self._stack.launch(REGISTRY)

    def _serve(self, name: str, server: Server) -> None:
        for absence in self._absences[name]:
            if self._stop.wait(absence.lives_s):
                return
            with self._busy[name]:
                server.kill()
                self._history.add(name, "killed")
                self._stop.wait(absence.away_s)
                server.start()
                self._started.add(name)


def _random_fault(chance: random.Random, points: list[str]) -> str:
    """A point of the process at some passage; a lane's commit is the Python worker's, which Spark replaces."""
    point = chance.choice([point for point in points if point not in IN_A_LANE] or points)
    prelude = PROVOCATIONS[point].prelude if point in PROVOCATIONS else ""
    return f"{prelude}{point}:kill@{chance.randint(1, PASSAGE_MAX)}"


def _one_of(process: ServerProcess, part: float) -> int | None:
    """A process of the session that is not its leader."""
    leader = process.identity
    members = [pid for pid in session_members(leader) if pid != leader.pid]
    return members[int(part * 1000) % len(members)] if members else None
