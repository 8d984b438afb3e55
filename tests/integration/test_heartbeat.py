"""The heartbeat row on real sets of both flavours: one row on the primary, never elsewhere, and never in the topic."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from millrace.deploy.servers import Account as ServerAccount
from millrace.deploy.servers import DatabaseServer, DatabaseSet
from millrace.drivers.mysql.grants import as_grant_pattern
from millrace.producer.source.choose.judge import Look
from millrace.producer.source.choose.watch import Watch
from millrace.producer.source.connection import Login
from millrace.producer.source.heartbeat import Heartbeat
from millrace.producer.source.set_stream import Site
from millrace.producer.source.set_streams import Upstreams
from millrace.schemas.documents import (
    Account,
    HeartbeatRules,
    Member,
    SecretPlace,
    SecretReference,
    SetDocument,
    TableFilter,
)
from millrace.schemas.gtid import Flavour
from millrace.schemas.progress import Progress
from tests.fixtures.servers import FLAVOURS, NewSet, mostly
from tests.kit.capture.rig import MemoryCapture
from tests.kit.relay.relay import UNVERIFIED, member_of, members_of, position_of
from tests.kit.waiting import eventually

INTERVAL_S = 0.3
GRANTS = "CREATE, SELECT, INSERT, UPDATE"
_NAMES = count(1)


@pytest.fixture
def database(source_set: DatabaseSet) -> Iterator[str]:
    """An empty database on the set in which the service's account may keep its row."""
    name = f"beats_{next(_NAMES)}"
    source_set.execute(f"CREATE DATABASE {name}")
    source_set.execute(f"GRANT {GRANTS} ON {name}.* TO {source_set.user}@'%'")
    yield name
    source_set.execute(f"REVOKE {GRANTS} ON {name}.* FROM {source_set.user}@'%'")
    source_set.execute(f"DROP DATABASE {name}")


def _document(
    members: Sequence[Member], password: Path, user: str, database: str, name: str = "shop"
) -> SetDocument:
    return SetDocument(
        name=name,
        members=tuple(members),
        account=Account(user, SecretReference(SecretPlace.FILE, str(password))),
        tls=UNVERIFIED,
        heartbeat=HeartbeatRules(database=database, interval_s=INTERVAL_S),
    )


@contextmanager
def _beating(
    members: Sequence[Member], user: str, password: str, database: str
) -> Iterator[tuple[Heartbeat, Callable[[], Sequence[Look]]]]:
    """A heartbeat and the watch that it asks for the primary."""
    login = Login(user=user, password=password, tls=UNVERIFIED)
    watch = Watch(members, login, interval_s=0.2, on_looks=lambda _: None)
    document = _document(members, Path("unused"), user, database)
    heartbeat = Heartbeat(document, login, watch.looks)
    watch.start()
    heartbeat.start()
    try:
        yield heartbeat, watch.looks
    finally:
        heartbeat.stop()
        watch.stop()


def _sequence(server: DatabaseServer, database: str) -> int:
    """The row's number; 0 if there is no row or no table."""
    query = "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s"
    if not server.execute(query, (database,)):
        return 0
    rows = server.execute(f"SELECT sequence FROM {database}.heartbeat")
    return int(str(rows[0][0])) if rows else 0


def test_row_is_written_on_the_primary_and_reaches_the_replicas(
    source_set: DatabaseSet, database: str
) -> None:
    """The missing table is created; the row names set, worker and the server's clock; replicas only replicate it."""
    primary = source_set.primary
    members = members_of(source_set)
    with _beating(members, source_set.user, source_set.password, database) as (heartbeat, _):
        eventually(lambda: _sequence(primary, database) >= 3, what="three heartbeats")
        assert heartbeat.warning == ""
    query = f"""SELECT set_name, worker, ABS(TIMESTAMPDIFF(SECOND, written_at, NOW(6))) < 60
                FROM {database}.heartbeat"""
    ((name, worker, is_recent),) = primary.execute(query)
    assert (name, is_recent) == ("shop", 1)
    assert str(worker).rpartition(":")[2].isdigit()
    source_set.wait_for_replicas()
    end = position_of(primary)
    for replica in source_set.replicas:
        assert _sequence(replica, database) == _sequence(primary, database)
        assert end.includes(position_of(replica))


def test_two_workers_write_one_row_in_turn(source_set: DatabaseSet, database: str) -> None:
    """Two workers may hold the set's stream for a while: together they write once in each interval."""
    primary, members = source_set.primary, members_of(source_set)
    login = source_set.user, source_set.password
    with _beating(members, *login, database) as (first, _):
        eventually(lambda: _sequence(primary, database) >= 1, what="a heartbeat")
        before, began_s = _sequence(primary, database), time.monotonic()
        with _beating(members, *login, database) as (second, _):
            eventually(lambda: _sequence(primary, database) >= before + 6, what="six more")
            passed_s = time.monotonic() - began_s
        assert (first.warning, second.warning) == ("", "")
    assert passed_s > 5 * 0.75 * INTERVAL_S


@pytest.mark.parametrize("flavour", FLAVOURS, ids=str)
def test_replica_and_read_only_primary_get_no_row(new_set: NewSet, flavour: Flavour) -> None:
    """The account could write there: it has all privileges, with which read_only does not stop it."""
    source_set = new_set(flavour, replica_count=1)
    primary, (replica,) = source_set.primary, source_set.replicas
    almighty = ServerAccount("almighty", "secret")
    source_set.create_account(almighty, "ALL PRIVILEGES")
    source_set.execute("CREATE DATABASE beats")
    source_set.wait_for_replicas()
    before = position_of(replica)
    login = (almighty.user, almighty.password)
    with _beating([member_of(replica)], *login, "beats") as (heartbeat, _):
        eventually(lambda: heartbeat.warning, what="a warning")
        assert "MR-1047 no member could be the primary" in heartbeat.warning
    assert position_of(replica) == before
    primary.execute("SET GLOBAL read_only = ON")
    with _beating(members_of(source_set), *login, "beats") as (heartbeat, _):
        eventually(lambda: "is read_only" in heartbeat.warning, what="the warning of read_only")
        assert position_of(primary) == before
        primary.execute("SET GLOBAL read_only = OFF")
        eventually(lambda: _sequence(primary, "beats") >= 2, what="a heartbeat after read_only")
        assert heartbeat.warning == ""


def test_refused_heartbeat_names_the_statements_that_fix_it(
    source_set: DatabaseSet, tmp_path: Path
) -> None:
    """The set's stream runs, the status warns (MR-1047), and the statements of the warning are enough."""
    name = f"beats_{next(_NAMES)}"
    pattern = as_grant_pattern(name)
    primary = source_set.primary
    secret = tmp_path / "password"
    secret.write_text(source_set.password)
    document = _document(members_of(source_set), secret, source_set.user, name)
    streams = Upstreams(Site(root=tmp_path / "relay"))
    try:
        with streams.attach("task", document, wanted=None) as stream:
            for wanted in (f"GRANT {GRANTS} ON `{pattern}`.* TO ", f"CREATE DATABASE `{name}`;"):
                eventually(lambda: wanted in stream.heartbeat_warning, what=wanted)  # noqa: B023 - called at once
                said = stream.heartbeat_warning
                assert said.startswith("MR-1047")
                primary.execute(said[said.index(wanted) :].partition(";")[0])
            eventually(lambda: _sequence(primary, name) >= 2, what="a heartbeat")
            assert stream.heartbeat_warning == ""
            stream.check()
    finally:
        primary.execute(f"REVOKE {GRANTS} ON `{pattern}`.* FROM {source_set.user}@'%'")
        primary.execute(f"DROP DATABASE {name}")


@pytest.mark.parametrize("include", ["*.*", "beats_*.*"])
def test_heartbeats_move_the_progress_of_an_idle_set(
    source_set: DatabaseSet, database: str, tmp_path: Path, include: str
) -> None:
    """Their GTIDs are in the progress. Their rows are in the topic only if the task's filter names the table."""
    secret = tmp_path / "password"
    secret.write_text(source_set.password)
    document = _document(members_of(source_set), secret, source_set.user, database)
    tables = TableFilter((include,), hidden=document.heartbeat.table)
    start = position_of(source_set.primary)
    streams = Upstreams(Site(root=tmp_path / "relay"))
    with MemoryCapture(streams, document, tables, Progress(start, None, 0)) as capture:
        eventually(lambda: _sequence(source_set.primary, database) >= 3, what="three heartbeats")
        reached = position_of(source_set.primary)
        eventually(
            lambda: capture.progress.gtid_set.includes(reached), what=f"progress over {reached}"
        )
    assert (capture.error, capture.errors) == (None, [])
    found = [row.source.table for row in capture.rows]
    assert set(found) == (set() if include == "*.*" else {"heartbeat"})


@mostly(Flavour.MARIADB)
def test_stalled_replica_of_an_idle_set_is_seen(new_set: NewSet, flavour: Flavour) -> None:
    """Without a heartbeat it has everything that the primary has, until the next write."""
    source_set = new_set(flavour, replica_count=1)
    (replica,) = source_set.replicas
    source_set.execute("CREATE DATABASE beats")
    source_set.execute(f"GRANT {GRANTS} ON beats.* TO {source_set.user}@'%'")
    source_set.wait_for_replicas()
    word = "SLAVE" if flavour is Flavour.MARIADB else "REPLICA"
    login = (source_set.user, source_set.password)
    with _beating(members_of(source_set), *login, "beats") as (_, looks):

        def lag_s() -> float | None:
            return next((look.lag_s for look in looks() if look.member == member_of(replica)), None)

        eventually(lambda: lag_s() is not None and _sequence(replica, "beats"), what="a heartbeat")
        replica.execute(f"STOP {word} SQL_THREAD")
        eventually(lambda: (lag_s() or 0.0) > 2 * INTERVAL_S, what="the replica's lag")
        replica.execute(f"START {word} SQL_THREAD")
        eventually(lambda: lag_s() == 0.0, what="the replica without lag")


def test_document_without_heartbeat_writes_nothing(source_set: DatabaseSet, tmp_path: Path) -> None:
    """It is off by default."""
    secret = tmp_path / "password"
    secret.write_text(source_set.password)
    document = _document(members_of(source_set), secret, source_set.user, "")
    document = replace(document, heartbeat=HeartbeatRules())
    before = position_of(source_set.primary)
    with Upstreams(Site(root=tmp_path / "relay")).attach("task", document, wanted=None) as stream:
        eventually(lambda: stream.is_verified, what="a running stream")
        assert stream.heartbeat_warning == ""
    assert position_of(source_set.primary) == before
