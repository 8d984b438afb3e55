"""A soak: kills processes and servers repeatedly by a seed, several at once, and also while they restart.

Each victim has its own thread and its own random sequence from the seed and its name (``lives``, ``absences``,
``pairs``). It is started (half of the time a service's process has a random fault point armed), lives for a while, and
is killed, sometimes before its task runs again. Servers (broker, replica, target, ZooKeeper) and the registry are
killed less often. The primary is never killed: the ledger's writers need it. Sometimes two victims die at the same
time. The same seed gives each victim the same decisions; their places in the stream depend on the machine.

``history`` has a line for every death by SIGKILL: time, victim, cause. It is written at once, so it survives the test.
A process that ends in any other way fails the soak.
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

from millrace.deploy.servers.process import ServerProcess, session_members
from millrace.deploy.servers.server import Server
from millrace.errors import Retryable
from tests.fixtures.stack import RUNNING_WORDS, FaultStack
from tests.kit.faults.campaign import POINTS, PROVOCATIONS, victim_of

PASSAGE_MAX = 4
ARMED_S = 12.0  # for an armed process to reach its point; then it is killed anyway
LOOK_S = 0.05
LIVES_S = {"worker": (0.2, 9.0), "apply": (2.0, 45.0), "scheduler": (0.5, 20.0)}
TASK_RUNNERS = ("worker", "apply")
REGISTRY = "registry"
SERVER_LIVES_S = (40.0, 120.0)
SERVER_AWAY_S = (0.0, 4.0)
PAIRS = "pairs"
PAIR_EVERY_S = (8.0, 25.0)
WITH = "with "  # prefix of the cause for one of a pair


@dataclass(frozen=True, slots=True)
class Life:
    """One life of a service's process, decided in advance; ``part`` below 0.3: only a part of a driver is killed."""

    lives_s: float
    fault: str
    part: float


def lives(seed: int, name: str) -> Iterator[Life]:
    """An endless sequence, the same for the same seed and name."""
    chance = random.Random(f"{seed}/{name}")
    points = [point for point in POINTS if victim_of(point) == name]
    while True:
        lives_s = chance.uniform(*LIVES_S[name])
        fault = _random_fault(chance, points) if chance.random() < 0.5 else ""
        yield Life(lives_s, fault, chance.random())


@dataclass(frozen=True, slots=True)
class Absence:
    """One absence of a server or the registry: how long it runs before, and how long it is down."""

    lives_s: float
    away_s: float


def absences(seed: int, name: str) -> Iterator[Absence]:
    """An endless sequence, the same for the same seed and name."""
    chance = random.Random(f"{seed}/{name}")
    while True:
        yield Absence(chance.uniform(*SERVER_LIVES_S), chance.uniform(*SERVER_AWAY_S))


@dataclass(frozen=True, slots=True)
class Pair:
    """Two victims of one instant, ``wait_s`` after the previous pair; a server among them is down for ``away_s``."""

    wait_s: float
    first: str
    second: str
    away_s: float


def pairs(seed: int, servers: Collection[str]) -> Iterator[Pair]:
    """An endless sequence, the same for the same seed and servers; one of each pair is a service's process."""
    chance = random.Random(f"{seed}/{PAIRS}")
    while True:
        wait_s = chance.uniform(*PAIR_EVERY_S)
        first = chance.choice(list(LIVES_S))
        second = chance.choice([name for name in (*LIVES_S, *servers) if name != first])
        yield Pair(wait_s, first, second, chance.uniform(*SERVER_AWAY_S))


@dataclass(frozen=True, slots=True)
class Death:
    """``how``: the armed fault that was passed, ``after N s``, ``with OTHER``, or the killed part of the process."""

    at_s: float
    victim: str
    how: str
    is_recovering: bool = False  # restarted after a kill, and its task has not run yet

    @property
    def is_at_a_point(self) -> bool:
        """Whether it was killed at a fault point, not after a time."""
        return ":kill@" in self.how


@dataclass(slots=True)
class History:
    """All deaths, also written to a file of JSON lines."""

    path: Path
    began_s: float = field(default_factory=time.monotonic)
    deaths: list[Death] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, victim: str, how: str, *, is_recovering: bool = False) -> None:
        """Add a death that happened now."""
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
        """The number of deaths at a fault point."""
        return sum(death.is_at_a_point for death in self.deaths)

    @property
    def together(self) -> int:
        """The number of pairs that died in one instant."""
        return sum(death.how.startswith(WITH) for death in self.deaths) // 2

    @property
    def recovering(self) -> int:
        """The number of processes that died before their task ran again."""
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
        self._logs: dict[str, Callable[[], list[str]]] = {}  # the log of each life, from its start
        self._shot: list[ServerProcess] = []  # killed as one of a pair
        self._killing = threading.Lock()  # held while a process ends, so its death is recorded once
        self._busy = {
            name: threading.Lock() for name in self._servers
        }  # held while it is dead or starts
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._all_done = threading.Barrier(1)
        self._failures: list[BaseException] = []
        self._started: set[str] = set()  # servers that a soak thread has started

    def begin(self) -> None:
        """Start to kill."""
        self._stop.clear()
        begun: list[Callable[[], None]] = [
            *(partial(self._live, name) for name in LIVES_S),
            self._keep_registry,
            self._kill_pairs,
            *(partial(self._serve, name, server) for name, server in self._servers.items()),
        ]
        self._all_done = threading.Barrier(len(begun))
        self._threads = [threading.Thread(target=self._guard, args=(life,)) for life in begun]
        for thread in self._threads:
            thread.start()

    def calm(self) -> None:
        """Stop killing and start everything; raises the error of a thread."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        # processes die with the thread that started them (PR_SET_PDEATHSIG): start everything again from here
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
        # a server dies with the thread that started it, and another thread may still need it (`_live`: ZooKeeper)
        self._all_done.wait()

    def _live(self, name: str) -> None:
        """Start and kill a service's process, armed or not, until ``calm``; then start it without a fault."""
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
            with suppress(Retryable, KazooTimeoutError):  # not needed while ZooKeeper is down
                self._stack.expire(process)

    def _end(self, name: str, process: ServerProcess, life: Life, how: str) -> bool:
        """Kill the process, unless it is dead already; True if only a part was killed."""
        if process in self._shot:  # already recorded
            return False
        if not process.is_alive():
            if not life.fault or process.exit_status != -signal.SIGKILL:
                raise AssertionError(process.failure(f"ended by itself, {life}"))
            self._died(name, life.fault)
            return False
        if name == "apply" and life.part < 0.3 and (pid := _one_of(process, life.part)):
            os.kill(pid, signal.SIGKILL)  # the JVM or a Python worker: the driver must notice
            self._died(name, f"one of its processes {how}")
            return True
        self._died(name, how)
        process.kill()
        return False

    def _died(self, name: str, how: str) -> None:
        """Record a death. A process without tasks never counts as recovering."""
        log = self._logs.get(name)
        is_recovering = log is not None and not any(RUNNING_WORDS in line for line in log())
        self._history.add(name, how, is_recovering=is_recovering)

    def _kill_pairs(self) -> None:
        """Kill two live victims at once; a server is restarted."""
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
        """Whether both were alive."""
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
        """Kill and restart it; also after it ended because the broker was down."""
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
    """A point and pass of the process. Apply's are in Python workers, which Spark replaces until the life ends."""
    point = chance.choice(points)
    prelude = PROVOCATIONS[point].prelude if point in PROVOCATIONS else ""
    return f"{prelude}{point}:kill@{chance.randint(1, PASSAGE_MAX)}"


def _one_of(process: ServerProcess, part: float) -> int | None:
    """A process of the session other than its leader."""
    leader = process.identity
    members = [pid for pid in session_members(leader) if pid != leader.pid]
    return members[int(part * 1000) % len(members)] if members else None
