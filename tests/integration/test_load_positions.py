"""The GTID sets around reads of a load, against the binlog of the member that is read, while writers commit.

Each writer has its own table and commits one row at a time, so a read that sees n rows sees its first n transactions.
``SHOW BINLOG EVENTS`` names the table of each GTID.
"""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from millrace.deploy.servers import Account, DatabaseServer, DatabaseSet, sql
from millrace.drivers.mysql.connection import MySqlSession, connect
from millrace.drivers.mysql.grants import Role, needed_grants
from millrace.drivers.mysql.snapshot_position import begin_exact, read_begin, read_end
from millrace.schemas.gtid import AnyGtid, Flavour, GtidPosition, parse_gtid
from tests.kit.apply.loading import LOADER, create_loader
from tests.kit.apply.local import endpoint_of
from tests.kit.waiting import eventually

pytestmark = pytest.mark.both_flavours

WRITERS = 3
ROUNDS = 3
WRITE_EVERY_S = 0.004
DATABASE = "framed"
_GTID = re.compile(r"(?:GTID_NEXT= '|GTID )([^' ]+:\d+|\d+-\d+-\d+)")


@pytest.fixture
def loader(source_set: DatabaseSet) -> Iterator[Account]:
    """An account with the rights of capture and load, and the database ``framed``, which is dropped afterwards."""
    grants = [
        *needed_grants(Role.SOURCE, source_set.flavour),
        *needed_grants(Role.LOAD, source_set.flavour, (DATABASE,)),
    ]
    source_set.execute(f"CREATE DATABASE {DATABASE}")
    for member in source_set.members:
        create_loader(member, grants)
    yield LOADER
    for member in source_set.members:
        sql.execute_unlogged(member.socket, [f"DROP USER '{LOADER.user}'@'%'"])
    source_set.execute(f"DROP DATABASE {DATABASE}")


def _session(server: DatabaseServer, account: Account) -> MySqlSession:
    return connect(replace(endpoint_of(server), user=account.user, password=account.password))


@contextmanager
def _writing(source: DatabaseServer) -> Iterator[None]:
    """Writers commit rows to their tables during the block."""
    stop = threading.Event()

    def write(place: int) -> None:
        with sql.root_connection(source.socket, database=DATABASE) as connection:
            cursor = connection.cursor()
            while not stop.wait(WRITE_EVERY_S):
                cursor.execute(f"INSERT INTO t{place} VALUES (NULL)")

    threads = [threading.Thread(target=write, args=(place,)) for place in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _transactions(server: DatabaseServer, flavour: Flavour) -> dict[int, list[AnyGtid]]:
    """The GTIDs of each writer in the order of the server's binlog."""
    found: dict[int, list[AnyGtid]] = {place: [] for place in range(WRITERS)}
    for file, *_ in server.execute("SHOW BINARY LOGS"):
        gtid = ""
        for row in server.execute(f"SHOW BINLOG EVENTS IN '{file}'"):
            kind, info = str(row[2]), str(row[5])
            if match := _GTID.search(info):
                gtid = match[1]
            elif kind == "Table_map" and (table := re.search(rf"\({DATABASE}\.t(\d)\)", info)):
                found[int(table[1])].append(parse_gtid(flavour, gtid))
    return found


def _counts(session: MySqlSession) -> list[int]:
    """The rows of each table, each in a read of its own unless a transaction is open."""
    return [
        int(str(session.query(f"SELECT COUNT(*) FROM {DATABASE}.t{place}")[0][0]))
        for place in range(WRITERS)
    ]


def _wait_for_more(session: MySqlSession) -> None:
    """Wait until each writer has committed again."""
    before = _counts(session)
    session.rollback()

    def is_more() -> bool:
        now = _counts(session)
        session.rollback()
        return all(count > known for count, known in zip(now, before, strict=True))

    eventually(is_more, what="the writers commit")


def _inside(position: GtidPosition, gtids: list[AnyGtid]) -> int:
    """How many of these transactions the position has."""
    return sum(position.covers(gtid) for gtid in gtids)


@pytest.mark.guarantee("loaded")
def test_reads_of_a_load_are_framed_by_its_gtid_sets(
    source_set: DatabaseSet, loader: Account
) -> None:
    """On primary and replica: all of `begin` is visible, nothing outside `end`, and an exact set is what is visible."""
    primary, replica = source_set.primary, source_set.replicas[0]
    for place in range(WRITERS):
        primary.execute(f"CREATE TABLE {DATABASE}.t{place} (id INT AUTO_INCREMENT PRIMARY KEY)")
    count = f"SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = '{DATABASE}'"
    eventually(lambda: replica.execute(count) == [(WRITERS,)], what="the tables are replicated")
    framed: dict[str, list[tuple[GtidPosition, list[int], GtidPosition]]] = {}
    exact: dict[str, list[tuple[GtidPosition, list[int]]]] = {}
    tables = [(DATABASE, f"t{place}") for place in range(WRITERS)]
    with _writing(primary):
        eventually(lambda: primary.execute(f"SELECT COUNT(*) > 50 FROM {DATABASE}.t0") == [(1,)])
        for name, server in (("primary", primary), ("replica", replica)):
            session = _session(server, loader)
            for _ in range(ROUNDS):
                _wait_for_more(session)
                begin = read_begin(session)
                counts = _counts(session)
                session.rollback()
                framed.setdefault(name, []).append((begin, counts, read_end(session)))
                position = begin_exact(session, tables)
                exact.setdefault(name, []).append((position, _counts(session)))
                session.rollback()
            session.close()
    for name, server in (("primary", primary), ("replica", replica)):
        gtids = _transactions(server, source_set.flavour)
        for begin, counts, end in framed[name]:
            for place, seen in enumerate(counts):
                assert _inside(begin, gtids[place]) <= seen <= _inside(end, gtids[place]), name
        for position, counts in exact[name]:
            found = [_inside(position, gtids[place]) for place in range(WRITERS)]
            assert found == counts, name


def test_writer_that_holds_a_table_is_waited_for(
    source_set: DatabaseSet, loader: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MySQL's lock is asked for again after its short wait. MariaDB's snapshot needs none, and sees no open row."""
    monkeypatch.setattr("millrace.drivers.mysql.snapshot_position.LOCK_WAIT_S", 1)
    primary = source_set.primary
    primary.execute(f"CREATE TABLE {DATABASE}.held (id INT PRIMARY KEY)")
    session = _session(primary, loader)
    found: list[GtidPosition] = []

    def begin() -> None:
        found.append(begin_exact(session, [(DATABASE, "held")]))

    waiting = threading.Thread(target=begin)
    with sql.root_connection(primary.socket, database=DATABASE) as holder:
        holder.begin()
        holder.cursor().execute("INSERT INTO held VALUES (1)")
        waiting.start()
        if session.flavour is Flavour.MYSQL:
            tries = "SHOW GLOBAL STATUS LIKE 'Com_lock_tables'"
            before = int(str(primary.execute(tries)[0][1]))
            eventually(lambda: int(str(primary.execute(tries)[0][1])) > before, what="a second try")
        else:
            waiting.join(60)
        holder.commit()
    waiting.join(60)
    assert found
    seen = session.query(f"SELECT COUNT(*) FROM {DATABASE}.held")
    assert seen == [(int(session.flavour is Flavour.MYSQL),)]
    session.close()
