"""One ordeal: a source under writes and DDL, an apply task that is killed at point after point, and later loads.

1  fill     generated tables, before capture begins
2  load     `start: load` under writes and DDL, killed at each point of a load
3  streams  tables are loaded again, and a wider filter admits more; killed at each point of a stream
4  calm     writes end, everything is applied; independent SQL compares both servers
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from millrace.consumer.backfill import new_tables
from millrace.consumer.load import request
from millrace.deploy.servers import DatabaseServer, DatabaseSet
from millrace.schemas.gtid import parse_gtid_set
from tests.fixtures.spark import PASSWORD_VARIABLE as TARGET_PASSWORD
from tests.kit.apply.loaded_topic import LoadedTopic
from tests.kit.apply.loading import LOADER
from tests.kit.apply.loading import PASSWORD_VARIABLE as SOURCE_PASSWORD
from tests.kit.ordeal.ddl import Alterer, Schema
from tests.kit.ordeal.process import Place
from tests.kit.ordeal.tables import LATE, Maker
from tests.kit.ordeal.writes import Writer, root, rows
from tests.kit.paths import ROOT
from tests.kit.waiting import PATIENCE_S, eventually

FAMILY_EVERY = 12  # one of so many tables is the parent of a family
FILL_ROWS, FILL_TIMES = 60, 4
REACH_S = 45.0  # for a process without a load to do to reach its point; then it is killed anyway
AGAIN_S = 6.0  # until tables are asked for again
LOOK_S = 0.1
# each is killed once before all tables are copied; a snapshot is read first
LOADING = (
    "load.after_plan",
    "load.after_create@3",
    "load.before_chunk_commit",
    "load.after_chunk_commit",
    "load.after_reset",
    "load.after_found@2",
    "load.before_chunk_commit@9",
    "load.after_chunk_commit@12",
    "load.after_table@4",
    "load.before_stream",
    "load.after_stream",
)
STREAMS = (
    "streams.before_begin",
    "streams.after_begin",
    "load.after_plan",
    "load.after_found",
    "load.before_chunk_commit@2",
    "load.after_chunk_commit@3",
    "load.after_reset@2",
    "load.after_create",
    "load.after_table",
    "streams.before_follow",
    "streams.after_follow",
    "streams.before_aside",
    "streams.after_aside",
    "streams.before_join",
    "streams.after_join",
)


@dataclass(frozen=True, slots=True)
class Size:
    """How large an ordeal is. ``points``: those at which the task is killed."""

    tables: int = 100
    writers: int = 3
    ddl_every_s: float = 0.4
    loading: tuple[str, ...] = LOADING
    streams: tuple[str, ...] = STREAMS
    is_grown: bool = True


@dataclass
class Told:
    """The kills of a run, and the points that it did not reach."""

    killed: list[str] = field(default_factory=list)
    unreached: list[str] = field(default_factory=list)
    asked: int = 0

    @property
    def points(self) -> set[str]:
        """The names of those that were reached."""
        return {point.partition("@")[0] for point in self.killed}


@dataclass
class Ordeal:
    """``topic``: the source, the target, and the name of database, topic and task."""

    topic: LoadedTopic
    seed: int
    size: Size = field(default_factory=Size)
    told: Told = field(default_factory=Told)
    schema: Schema = field(init=False)
    writers: list[Writer] = field(init=False, default_factory=list)
    alterer: Alterer | None = field(init=False, default=None)
    _process: subprocess.Popen[bytes] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.schema = Schema(Maker(self.source.flavour, random.Random(self.seed)), [])

    @property
    def source(self) -> DatabaseSet:
        """The set."""
        return self.topic.source

    @property
    def target(self) -> DatabaseServer:
        """The server."""
        return self.topic.target

    @property
    def name(self) -> str:
        """The name of task, topic and database."""
        return self.topic.name

    @property
    def log(self) -> Path:
        """The output of the killed processes."""
        return self.topic.folder / "apply.log"

    @property
    def place(self) -> Place:
        """The addresses for a process of the task."""
        return Place(
            self.name,
            tuple(member.port for member in self.source.members),
            (self.target.port, self.target.user),
            (self.topic.bootstrap, self.topic.registry),
        )

    @contextmanager
    def endured(self) -> Iterator[None]:
        """Everything up to the calm; the task and capture run during the block."""
        self.fill()
        try:
            with self.topic.capturing():
                with self.writing():
                    self.load()
                    self.follow()
                self.calm()
                yield
        finally:
            self.end()

    def summary(self) -> str:
        """The counts of this run, as one line."""
        assert self.alterer is not None
        rows = sum(writer.done.total() for writer in self.writers)
        return (
            f"{len(self.schema.tables)} tables, {rows} statements with rows,"
            f" {self.alterer.done.total()} of DDL, {len(self.told.killed)} kills;"
            f" not reached: {', '.join(self.told.unreached) or 'none'}"
        )

    # ---- the source ------------------------------------------------------------------------------

    def fill(self) -> None:
        """Create the tables and their first rows."""
        maker, tables = self.schema.maker, self.schema.tables
        while len(tables) < self.size.tables:
            if len(tables) % FAMILY_EVERY == FAMILY_EVERY - 1:
                tables += maker.family()
            elif len(tables) % 20 == 19:
                tables.append(replace(maker.table(prefix=LATE), fixed=True))
            else:
                tables.append(maker.table())
        with root(self.source.primary, self.name) as cursor:
            for table in tables:
                cursor.execute(table.create)
                for _ in range(FILL_TIMES):
                    values = rows(self.chance, table, FILL_ROWS)
                    cursor.execute(f"INSERT IGNORE INTO {table.sql} {values}")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Writers and DDL during the block."""
        primary = self.source.primary
        self.writers = [
            Writer(primary, self.name, self.schema.names, seed=self.seed + number)
            for number in range(self.size.writers)
        ]
        every_s = self.size.ddl_every_s
        self.alterer = Alterer(primary, self.name, self.schema, every_s=every_s)
        try:
            yield
        finally:
            closed = [self.alterer.close, *(writer.close for writer in self.writers)]
            for close in closed:
                close()

    # ---- the task --------------------------------------------------------------------------------

    def load(self) -> None:
        """Kill the first load at point after point."""
        place = replace(self.place, exclude=(f"{self.name}.{LATE}*",))
        for point in self.size.loading:
            self._kill_at(place, point)

    def follow(self) -> None:
        """Kill later loads at point after point, and requests for them."""
        place = replace(self.place, exclude=(f"{self.name}.{LATE}*",))
        for point in self.size.streams:
            self._kill_at(place, point, meanwhile=self.ask)
        if self.size.streams:
            for fault in (request.BEFORE_COMMIT, request.AFTER_COMMIT):
                assert self.ask(fault) == -signal.SIGKILL
                self.told.killed.append(fault)
        if self.size.is_grown:
            for fault in (new_tables.BEFORE_GROWN, new_tables.AFTER_GROWN):
                self._kill_at(self.place, fault)

    def ask(self, fault: str = "") -> int:
        """Let random tables wait for a load; the exit status of the command."""
        count = self.chance.randint(1, max(2, self.size.tables // 10))
        known = [t.name for t in self.schema.names() if not t.name.startswith(LATE)]
        names = self.chance.sample(known, min(count, len(known)))
        self.told.asked += 1
        command = self._command("ask", self.place, *names)
        environment = self._environment(f"{fault}:kill" if fault else "")
        with self.log.open("ab") as log:
            return subprocess.run(command, env=environment, stderr=log, check=False).returncode

    def start(self, place: Place, fault: str = "") -> subprocess.Popen[bytes]:
        """Start the task's process."""
        with self.log.open("ab") as log:
            log.write(f"--- {fault}\n".encode())
            log.flush()
            self._process = subprocess.Popen(
                self._command("run", place),
                env=self._environment(fault),
                stdout=log,
                stderr=log,
                cwd=ROOT,
            )
        return self._process

    def end(self) -> None:
        """Kill the task's process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _kill_at(self, place: Place, point: str, meanwhile: Callable[[], object] = list) -> None:
        name, _, passage = point.partition("@")
        process = self.start(place, f"{name}:kill@{passage or 1}")
        is_busy, asked_s = True, 0.0
        until_s = time.monotonic() + PATIENCE_S
        while process.poll() is None and time.monotonic() < until_s:
            self.check()
            if self.is_following():
                if is_busy:
                    is_busy, until_s = False, time.monotonic() + REACH_S
                if time.monotonic() > asked_s:
                    meanwhile()
                    asked_s = time.monotonic() + AGAIN_S
            time.sleep(LOOK_S)
        is_reached = process.poll() is not None
        self.end()
        assert process.returncode == -signal.SIGKILL, self.last_words()
        (self.told.killed if is_reached else self.told.unreached).append(point)

    def check(self) -> None:
        """Raise the error of capture or of a writer."""
        assert self.topic.failure is None, self.topic.failure
        for one in (self.alterer, *self.writers):
            assert one is None or one.failure is None, one.failure

    def is_following(self) -> bool:
        """Whether the first load is over, and no table is loaded or waits."""
        at = self.target.execute("SELECT 1 FROM millrace.progress WHERE task = %s", (self.name,))
        return bool(at) and not self.waiting()

    def waiting(self) -> list[tuple[object, ...]]:
        """The tables of loads on the target."""
        return self.target.execute(
            "SELECT table_name, batch, state, detail FROM millrace.load_table WHERE task = %s"
            " AND (state <> 'follows' OR batch <> 0)",
            (self.name,),
        )

    def calm(self) -> None:
        """Wait until the task has applied everything, and no table is left to load."""
        if self._process is None or self._process.poll() is not None:
            self.start(self.place)
        process = self._process
        assert process is not None
        flavour = self.source.flavour
        wanted = parse_gtid_set(flavour, self.source.primary.gtid_position())

        def is_calm() -> bool:
            assert process.poll() is None, self.last_words()
            self.check()
            found = self.target.execute(
                "SELECT gtid_set FROM millrace.progress WHERE task = %s", (self.name,)
            )
            if not found or not found[0][0]:
                return False
            return parse_gtid_set(flavour, str(found[0][0])).includes(wanted) and not self.waiting()

        eventually(is_calm, every_s=0.2, what=f"{wanted} is applied")

    def last_words(self) -> str:
        """The end of the log."""
        return self.log.read_text()[-4000:]

    def _command(self, verb: str, place: Place, *more: str) -> Sequence[str]:
        return (sys.executable, "-m", "tests.kit.ordeal.process", verb, place.to_json(), *more)

    def _environment(self, fault: str) -> dict[str, str]:
        return {
            **os.environ,
            "MILLRACE_FAULT": fault,
            SOURCE_PASSWORD: LOADER.password,
            TARGET_PASSWORD: self.target.password,
        }
