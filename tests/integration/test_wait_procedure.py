"""``CALL millrace.wait_for_gtid`` on the target, by a reader with EXECUTE only, while a task applies."""

import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

import pytest
from structlog.testing import capture_logs

from millrace.consumer.target import wait_procedure
from millrace.consumer.target.progress import Mark, insert_mark
from millrace.consumer.target.wait_procedure import COMMENT, create_procedure
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import Endpoint, MySqlSession, connect
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour, GtidSet, MariadbGtidSet
from tests.kit.apply.local import LocalRecords, apply_task, endpoint_of, ignore, started, started_at
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream
from tests.kit.waiting import eventually

READER, PASSWORD = "reader", "reader-secret"
UUIDS = [f"3e11fa47-71ca-11e1-9e33-c80aa942956{n}" for n in (2, 3)]
LEVELS = ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")

_names = count(1)


@pytest.fixture
def server(target_server: DatabaseServer) -> Iterator[DatabaseServer]:
    """A target with the procedure, and a reader that may only call it and read rows."""
    started(target_server, apply_task("of-procedure")).close()
    target_server.execute(f"CREATE USER {READER} IDENTIFIED BY '{PASSWORD}'")
    target_server.execute(f"GRANT EXECUTE ON millrace.* TO {READER}")
    yield target_server
    target_server.execute(f"DROP USER {READER}")


@contextmanager
def _reader(server: DatabaseServer, level: str = "REPEATABLE READ") -> Iterator[MySqlSession]:
    """A reader's session: autocommit is on, as clients begin."""
    session = connect(replace(endpoint_of(server), user=READER, password=PASSWORD))
    session.query(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    session.query("SET SESSION autocommit = 1")
    try:
        yield session
    finally:
        session.close()


def _call(session: MySqlSession, task: str, gtid_set: str, timeout_s: float = 0) -> object:
    ((reached,),) = session.query(
        "CALL millrace.wait_for_gtid(%s, %s, %s)", (task, gtid_set, timeout_s)
    )
    return reached


@contextmanager
def _called(
    server: DatabaseServer, session: MySqlSession, task: str, gtid_set: str
) -> Iterator["Future[object]"]:
    """A call that has polled once at least and waits."""
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(_call, session, task, gtid_set, 600)
        sees = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE = 'User sleep'"
        eventually(lambda: call.done() or server.execute(sees) == [(1,)], what="the call polls")
        yield call


@pytest.fixture
def stream(server: DatabaseServer) -> Iterator[tuple[str, RecordStream]]:
    """A task with a table, and its stream."""
    name = f"waited{next(_names)}_{server.flavour}"
    server.execute(f"CREATE DATABASE {name}")
    server.execute("CREATE TABLE t (n INT PRIMARY KEY)", db=name)
    yield name, RecordStream()
    server.execute(f"DROP DATABASE {name}")


def _one_more(server: DatabaseServer, name: str, stream: RecordStream) -> Callable[[], None]:
    """Add a source transaction; returns what applies it."""
    first = len(stream.values)
    stream.insert(table(name, "t", integer("n")), {"n": stream.seq + 1})
    stream.commit()
    values = stream.values[first:]

    def apply() -> None:
        applier = started(server, apply_task(name))
        applier.process(LocalRecords(values, first), ignore)
        applier.close()

    return apply


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("autocommit", [1, 0])
def test_wait_ends_when_the_task_has_applied_the_set(
    server: DatabaseServer, stream: tuple[str, RecordStream], level: str, autocommit: int
) -> None:
    """Outside a transaction, under each isolation level. The caller's rows are those of the set, and no transaction
    is left open."""
    name, records = stream
    _one_more(server, name, records)()
    server.execute(f"GRANT SELECT ON {name}.* TO {READER}")
    with _reader(server, level) as session:
        session.query(f"SET SESSION autocommit = {autocommit}")
        assert _call(session, name, records.gtid_set) == 1
        apply = _one_more(server, name, records)
        assert _call(session, name, records.gtid_set) == 0
        with _called(server, session, name, records.gtid_set) as call:
            apply()
            assert call.result(60) == 1
        session.query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")  # 1568 in a transaction
        assert session.query(f"SELECT COUNT(*) FROM {name}.t") == [(2,)]


@pytest.mark.parametrize("level", LEVELS)
def test_open_transaction_waits_only_without_a_snapshot(
    server: DatabaseServer, stream: tuple[str, RecordStream], level: str
) -> None:
    """Under READ COMMITTED the wait works, and the transaction stays open with its writes. Else it is refused."""
    name, records = stream
    _one_more(server, name, records)()
    server.execute(f"GRANT ALL ON {name}.* TO {READER}")
    apply = _one_more(server, name, records)
    with _reader(server, level) as session:
        session.query("START TRANSACTION")
        session.query(f"INSERT INTO {name}.t VALUES (-1)")
        if level.startswith("READ"):
            with _called(server, session, name, records.gtid_set) as call:
                apply()
                assert call.result(60) == 1
        else:
            with pytest.raises(Fatal, match="open transaction that is not READ COMMITTED"):
                _call(session, name, records.gtid_set, 600)
        session.query("ROLLBACK")
        assert session.query(f"SELECT COUNT(*) FROM {name}.t WHERE n < 0") == [(0,)]


@pytest.mark.parametrize(
    ("task", "gtid_set", "why"),
    [
        ("unknown", "0-1-7", "MR-4104 Millrace has no task unknown on this server"),
        ("u" * 190, "0-1-7", f"{'u' * 40} on this server: correct the name or the server"),
        ("{mariadb}", "0-1-5,0-1-9999999", "MR-6001 '0-1-9999999' repeats its domain in this"),
        ("{mariadb}", "1-1-1,0-1-1,00-2-1", "'00-2-1' repeats its domain"),
        ("{mariadb}", "'" * 99, "MR-6001 "),
        ("{mariadb}", "", "MR-6001 the GTID set is empty"),
        ("{mysql}", " ,", "MR-6001 the GTID set is empty"),
        ("{mariadb}", "0-1", "MR-6001 '0-1' is no GTID set of mariadb"),
        ("{mariadb}", "0-1-7,x", "'x' is no GTID set of mariadb"),
        ("{mariadb}", f"{UUIDS[0]}:1", "is no GTID set of mariadb"),
        ("{mysql}", "0-1-7", "'0-1-7' is no GTID set of mysql"),
        ("{mysql}", UUIDS[0], "is no GTID set of mysql"),
        ("{mysql}", f"{UUIDS[0]}:", "is no GTID set of mysql"),
        ("{mysql}", f"{UUIDS[0]}:5-3", "is no GTID set of mysql"),
        ("{mysql}", f"{UUIDS[0]}:0", "is no GTID set of mysql"),
        ("{mysql}", f"{UUIDS[0]}:1:blue", "is no GTID set of mysql"),
        ("{mysql}", f"{UUIDS[0]}:1:%", "is no GTID set of mysql"),
        ("{mysql}", None, "needs a task, a GTID set and a timeout"),
    ],
)
def test_unusable_arguments_are_errors(
    server: DatabaseServer, marks: "Marks", task: str, gtid_set: str | None, why: str
) -> None:
    """At once, not at the timeout."""
    names = {flavour.value: marks.at(flavour, "") for flavour in Flavour}
    with _reader(server) as session, pytest.raises(Fatal) as caught:
        session.query("CALL millrace.wait_for_gtid(%s, %s, 600)", (task.format(**names), gtid_set))
    assert why in caught.value.message


class Marks:
    """Tasks whose progress is set by the test."""

    def __init__(self, session: MySqlSession) -> None:
        self._session = session

    def at(self, flavour: Flavour, gtid_set: str) -> str:
        """A task at this GTID set."""
        name = f"mark{next(_names)}"
        insert_mark(self._session, name, Mark(1, 1, gtid_set, str(flavour)))
        self._session.commit()
        return name

    def move(self, name: str, gtid_set: str) -> None:
        """Move its mark."""
        self._session.query(
            "UPDATE millrace.progress SET gtid_set = %s WHERE task = %s", (gtid_set, name)
        )
        self._session.commit()


@pytest.fixture
def marks(server: DatabaseServer) -> Iterator[Marks]:
    """Progress of tasks that do not run."""
    session = connect(endpoint_of(server))
    yield Marks(session)
    session.close()


def test_sets_of_mysql_sources_are_compared_by_interval(
    server: DatabaseServer, marks: Marks
) -> None:
    """On both servers, as MySQL compares them: with gaps and tags."""
    chance, task = random.Random(5), marks.at(Flavour.MYSQL, "")

    def some(most: int) -> str:
        sources = [(uuid, tag) for uuid in UUIDS for tag in ("", "blue")]
        parts = []
        for uuid, tag in chance.sample(sources, chance.randint(1, 3)):
            first = chance.randint(1, 9)
            last = chance.randint(first, first + most)
            parts.append(f"{uuid}:{f'{tag}:' * bool(tag)}{first}-{last}:{last + 2}")
        return ",".join(parts)

    found = []
    with _reader(server) as session:
        for _ in range(150):
            has, wanted = GtidSet.parse(f"{some(9)},{some(9)}"), some(2)
            marks.move(task, str(has))
            found.append(_call(session, task, wanted.upper().replace(",", " ,\n")))
            assert found[-1] == has.includes(GtidSet.parse(wanted)), (str(has), wanted)
    assert 10 < sum(map(int, map(str, found))) < 140


def test_sets_of_mariadb_sources_are_compared_by_domain(
    server: DatabaseServer, marks: Marks
) -> None:
    """On both servers: the sequence of each domain counts, not the server that wrote it."""
    chance, task = random.Random(5), marks.at(Flavour.MARIADB, "")

    def some() -> str:
        domains = chance.sample([0, 1, 11, 4294967295], chance.randint(1, 3))
        return ",".join(
            f"{each}-{chance.randint(1, 3)}-{chance.choice([1, 9, 10, 2**64 - 1])}"
            for each in domains
        )

    found = []
    with _reader(server) as session:
        for _ in range(150):
            has, wanted = MariadbGtidSet.parse(some()), some()
            marks.move(task, str(has))
            found.append(_call(session, task, wanted))
            assert found[-1] == has.includes(MariadbGtidSet.parse(wanted)), (str(has), wanted)
    assert 10 < sum(map(int, map(str, found))) < 140


def test_task_without_a_position_has_reached_nothing(server: DatabaseServer, marks: Marks) -> None:
    """The flavor of its source is not known yet."""
    task = marks.at(Flavour.MARIADB, "")
    server.execute("UPDATE millrace.progress SET flavour = '' WHERE task = %s", (task,))
    with _reader(server) as session:
        for gtid_set in ("0-1-7", f"{UUIDS[0]}:1"):
            assert _call(session, task, gtid_set) == 0


def test_procedure_of_another_version_is_replaced(server: DatabaseServer) -> None:
    """Its comment has the version. If the task dies after the DROP, the next start creates it."""
    server.execute("DROP PROCEDURE millrace.wait_for_gtid")
    server.execute("CREATE PROCEDURE millrace.wait_for_gtid () COMMENT 'Millrace 0' SELECT 7")
    session = connect(endpoint_of(server))

    def dies(point: str) -> None:
        assert point == wait_procedure.PROCEDURE_DROPPED
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wait_procedure, "fault_point", dies)
        with pytest.raises(KeyboardInterrupt):
            create_procedure(session)
    session.close()
    assert _comments(server) == []
    started(server, apply_task("of-procedure")).close()
    assert _comments(server) == [(COMMENT,)]
    with _reader(server) as reader:
        assert _call(reader, "of-procedure", "0-1-7") == 0


@pytest.mark.parametrize(
    ("loss", "errno"),
    [
        ("DROP USER former", "1449"),
        ("REVOKE SELECT ON millrace.* FROM former", "1142"),
        ("REVOKE EXECUTE ON millrace.* FROM former", "1370"),
    ],
)
def test_procedure_of_a_lost_account_is_made_again(
    server: DatabaseServer, loss: str, errno: str
) -> None:
    """Its definer was dropped or has lost a right: readers wait again after the next start of any task."""
    server.execute("DROP PROCEDURE millrace.wait_for_gtid")
    server.execute(f"CREATE USER former IDENTIFIED BY '{PASSWORD}'")
    server.execute("GRANT SELECT, EXECUTE, CREATE ROUTINE, ALTER ROUTINE ON millrace.* TO former")
    session = connect(replace(endpoint_of(server), user="former", password=PASSWORD))
    create_procedure(session)
    session.close()
    with _reader(server) as reader:
        assert _call(reader, "of-procedure", "0-1-7") == 0
        server.execute(loss)
        with pytest.raises(Fatal) as caught:
            _call(reader, "of-procedure", "0-1-7")
        assert caught.value.context["errno"] == errno
        started(server, apply_task("of-procedure")).close()
        assert _call(reader, "of-procedure", "0-1-7") == 0
    server.execute("DROP USER IF EXISTS former")


def _comments(server: DatabaseServer) -> list[tuple[object, ...]]:
    return server.execute(
        "SELECT ROUTINE_COMMENT FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = 'millrace'"
    )


def test_account_that_may_not_create_the_procedure_applies_without_it(
    server: DatabaseServer, stream: tuple[str, RecordStream]
) -> None:
    """The start logs the missing grant once, and the task applies its rows."""
    name, records = stream
    _one_more(server, name, records)
    server.execute("DROP PROCEDURE millrace.wait_for_gtid")
    server.execute(f"GRANT ALL ON {name}.* TO {READER}")
    server.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER ON millrace.* TO {READER}")
    server.execute(f"GRANT PROCESS ON *.* TO {READER}")
    endpoint: Endpoint = replace(endpoint_of(server), user=READER, password=PASSWORD)
    with capture_logs() as lines:
        applier = started_at(endpoint, apply_task(name))
        applier.process(LocalRecords(records.values), ignore)
        applier.close()
    assert applier.mark.seq == records.seq
    (warned,) = (line for line in lines if line["log_level"] == "warning")
    assert warned["error"].code == "MR-5026"
    assert "CREATE ROUTINE" in warned["error"].fix
    assert _comments(server) == []
