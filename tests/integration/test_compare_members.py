"""Comparison that reads a replica of the source set: late, stopped, lost in the middle."""

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from millrace import faults
from millrace.consumer.compare import (
    Comparison,
    Ends,
    Rules,
    State,
    Threads,
    Work,
    compare_sets,
    members,
    repair,
)
from millrace.consumer.compare.chunk import ChunkResult
from millrace.consumer.compare.members import ReadMember, Watch, choose_origin, from_members
from millrace.deploy.servers import DatabaseServer, DatabaseSet, sql
from millrace.drivers.mysql.connection import Endpoint
from millrace.errors import Retryable
from millrace.schemas.documents import Directives, Member, SetDocument
from millrace.schemas.gtid import Flavour
from tests.kit.apply.loading import LOADER, PASSWORD_VARIABLE, LoadRig, source_document
from tests.kit.apply.local import apply_task, endpoint_of, started
from tests.kit.database_sessions import kill_session

ROWS = ", ".join(f"({number}, 'v{number}')" for number in range(300))


class Rig(LoadRig):
    """Equal tables on a source set and a target, and a task that has applied everything."""

    def fill(self) -> None:
        """Create the tables and the task's progress."""
        self.target.execute(f"CREATE DATABASE {self.name}")
        for server in (self.source, self.target):
            server.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", db=self.name)
            server.execute(f"INSERT INTO t VALUES {ROWS}", db=self.name)
        start = self.source.primary.gtid_position()
        started(self.target, apply_task(self.name, start=start)).close()

    def apply(self, sql: str) -> None:
        """Commit a statement on the primary, and on the target at once: earlier than a replica can."""
        self.source.execute(sql, db=self.name)
        self.target.execute(sql, db=self.name)
        position = self.source.primary.gtid_position()
        moved = "UPDATE millrace.progress SET gtid_set = %s WHERE task = %s"
        self.target.execute(moved, (position, self.name))

    def document(self) -> SetDocument:
        """The source set."""
        return source_document(self.name, self.source.members)

    def ends(self, origin: ReadMember, wait_s: float = 30.0) -> Ends:
        """The sides, with this member of the source."""
        target = endpoint_of(self.target)
        return Ends(origin.source, target, self.name, wait_s, origin.primary)

    def compared(
        self, origin: ReadMember, *, wait_s: float = 30.0, rules: Rules | None = None
    ) -> Comparison:
        """Compare all tables."""
        ends = self.ends(origin, wait_s)
        return compare_sets(ends, lambda name, _: name == self.name, rules=rules)


@pytest.fixture
def rig(
    source_set: DatabaseSet,
    target_server: DatabaseServer,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Rig]:
    """One set of source servers and one target."""
    monkeypatch.setenv(PASSWORD_VARIABLE, LOADER.password)
    target_server.execute(f"DROP DATABASE {name}")
    made = Rig(source_set, target_server, name)
    made.create()
    made.fill()
    source_set.wait_for_replicas()
    yield made
    made.remove()
    target_server.execute(f"CREATE DATABASE {name}")


@contextmanager
def late(replicas: Sequence[DatabaseServer]) -> Iterator[Callable[[], None]]:
    """Replicas that execute nothing until the block or the call ends."""
    word = "SLAVE" if replicas[0].flavour is Flavour.MARIADB else "REPLICA"

    def start() -> None:
        for replica in replicas:
            replica.execute(f"START {word} SQL_THREAD")

    for replica in replicas:
        replica.execute(f"STOP {word} SQL_THREAD")
    try:
        yield start
    finally:
        start()


def _origin(rig: Rig) -> ReadMember:
    return choose_origin(rig.document(), Directives, wait_s=30.0)


def _members(rig: Rig) -> set[tuple[str, int]]:
    return {(server.host, server.port) for server in rig.source.replicas}


def _at(endpoint: Endpoint) -> tuple[str, int]:
    return endpoint.host, endpoint.port


def _codes(logs: Sequence[MutableMapping[str, Any]]) -> list[str]:
    return [entry["error"].code for entry in logs if "error" in entry]


def test_replica_is_read_and_the_primary_only_without_one(rig: Rig) -> None:
    """The reason names each replica."""
    primary = rig.source.primary
    origin = _origin(rig)
    assert _at(origin.source) in _members(rig)
    assert origin.primary is not None
    assert _at(origin.primary) == (primary.host, primary.port)
    assert not origin.why
    with late(rig.source.replicas):
        without = _origin(rig)
    assert _at(without.source) == (primary.host, primary.port)
    assert without.primary is None
    for replica in rig.source.replicas:
        assert f"{replica.host}:{replica.port}: it does not replicate" in without.why


def test_replica_that_does_not_keep_up_is_not_read(rig: Rig) -> None:
    """Both replicate without an error, but wait for a lock; the comparison does not wait for ever."""
    with ExitStack() as locked:
        for replica in rig.source.replicas:
            root = locked.enter_context(sql.root_connection(replica.socket))
            root.cursor().execute("FLUSH TABLES WITH READ LOCK")
        rig.apply("DELETE FROM t WHERE id = 1")
        origin = choose_origin(rig.document(), Directives, wait_s=0.5)
    assert origin.primary is None
    assert "does not have" in origin.why or "its lag is" in origin.why


@pytest.mark.parametrize(
    "ahead", ["UPDATE t SET v = 'new' WHERE id = 7", "CREATE TABLE fresh (id INT PRIMARY KEY)"]
)
def test_late_replica_is_no_difference(rig: Rig, ahead: str) -> None:
    """The target is ahead of it by a row or by a table. The comparison waits until it has this."""
    origin = _origin(rig)
    with late(rig.source.replicas) as catch_up:
        rig.apply(ahead)
        with pytest.raises(Retryable) as caught:
            rig.compared(origin, wait_s=0.3)
        assert caught.value.code == "MR-5128"
        catch_up()
        while (found := rig.compared(origin)).left_out:  # the replica made the table during it
            continue
        assert found.has_equal_rows
        assert found.differences == []


def test_repair_never_writes_the_row_of_a_late_replica(rig: Rig) -> None:
    """The source deletes the row while the repair begins; a late replica still has it."""
    origin = _origin(rig)
    rig.target.execute("DELETE FROM t WHERE id = 7", db=rig.name)
    rules = Rules(work=Work(repairs=True))
    locks: list[str] = []
    with ExitStack() as stopped:

        def delay(point: str) -> None:
            if point == repair.LOCKED:
                locks.append(point)
                stopped.enter_context(late(rig.source.replicas))
                rig.apply("DELETE FROM t WHERE id = 7")

        with faults.watched(delay), capture_logs() as logs:
            found = rig.compared(origin, rules=rules)
    assert (found.difference_count, found.repaired) == (1, 0)
    assert len(locks) == 1
    assert "MR-5129" in _codes(logs)
    assert rig.compared(origin, rules=rules).has_equal_rows
    assert rig.target.execute("SELECT * FROM t WHERE id = 7", db=rig.name) == []


def test_comparison_continues_when_its_member_is_lost(rig: Rig) -> None:
    """The replicas stop after the first chunk, and end its sessions; the rest is compared with the primary."""
    rig.target.execute("DELETE FROM t WHERE id IN (7, 207)", db=rig.name)
    origins: list[ReadMember] = []
    seen: list[int] = []
    with (
        closing(State.begin(endpoint_of(rig.target), rig.name, resumes=False)) as state,
        ExitStack() as stopped,
    ):

        def lose(chunk: ChunkResult) -> None:
            seen.append(chunk.job.chunk.number)
            if len(seen) == 1:
                stopped.enter_context(late(rig.source.replicas))
                for server in rig.source.replicas:
                    _end_sessions(server)

        def compare(origin: ReadMember) -> Comparison:
            origins.append(origin)
            pool = Threads(rig.ends(origin), 1)
            rules = Rules(chunk_rows=20, pool=pool, state=state, seen=lose)
            return rig.compared(origin, rules=rules)

        found = from_members(
            rig.document(), Directives, wait_s=5.0, compare=compare, is_stored=True
        )
    assert (found.difference_count, found.rows) == (2, 300)
    first, last = origins
    assert _at(first.source) in _members(rig)
    assert last.primary is None
    assert "does not replicate" in last.why
    assert seen == sorted(set(seen)), "a chunk was compared twice"


def test_drained_member_is_left_at_the_end_of_a_chunk(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next is read; with all replicas drained the primary, and a drained primary never."""
    monkeypatch.setattr(members, "WATCH_S", 0.0)
    drained: set[Member] = set()
    origins: list[ReadMember] = []

    def wishes() -> Directives:
        return Directives(drained=frozenset(drained))

    with closing(State.begin(endpoint_of(rig.target), rig.name, resumes=False)) as state:

        def compare(origin: ReadMember) -> Comparison:
            origins.append(origin)
            watch = Watch(origin, wishes)

            def drain(_: ChunkResult) -> None:
                if len(drained) < len(rig.source.replicas):
                    drained.add(Member(*_at(origin.source)))
                watch.look()

            pool = Threads(rig.ends(origin), 1)
            rules = Rules(chunk_rows=20, pool=pool, state=state, seen=drain)
            return rig.compared(origin, rules=rules)

        found = from_members(rig.document(), wishes, wait_s=5.0, compare=compare, is_stored=True)
    assert found.rows == 300
    read = [_at(origin.source) for origin in origins]
    primary = rig.source.primary
    assert set(read[:-1]) == _members(rig)
    assert read[-1] == (primary.host, primary.port)
    assert "an operator drained it" in origins[-1].why
    drained.add(Member(primary.host, primary.port))
    with pytest.raises(Retryable, match="an operator drained it") as caught:
        choose_origin(rig.document(), wishes, wait_s=5.0)
    assert caught.value.code == "MR-5090"


def _end_sessions(server: DatabaseServer) -> None:
    """End the sessions of the comparison."""
    listed = "SELECT id FROM information_schema.processlist WHERE user = %s"
    for (number,) in server.execute(listed, (LOADER.user,)):
        kill_session(server, number)
