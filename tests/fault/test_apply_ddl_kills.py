"""The driver, its connection or the server dies around and inside DDL of every kind: each statement runs once.

The expected state comes from a database in which the test executes the same statements itself.
"""

import threading
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from millrace.consumer.write import ddl
from millrace.deploy.servers import DatabaseServer
from millrace.errors import MillraceError, Retryable
from millrace.schemas.gtid import Flavour
from tests.fixtures.servers import FLAVOURS, NewServer
from tests.kit.apply.ddl_process import INSERT, apply_in_killed_processes, script_for
from tests.kit.apply.faults import BadLine, Supervised
from tests.kit.apply.local import apply_task, endpoint_of
from tests.kit.apply.topic import RecordStream
from tests.kit.waiting import eventually

# these may leave the state as it was, so they may run again, which changes nothing
REPEATABLE = ("IF NOT EXISTS", "IF EXISTS")
POINTS = (ddl.BEFORE_INTENT, ddl.AFTER_INTENT, ddl.AFTER_EXECUTE)
_names = count(1)


BOTH = [
    pytest.param(flavour, marks=pytest.mark.chaos if flavour is Flavour.MYSQL else [])
    for flavour in FLAVOURS
]


@pytest.mark.parametrize(
    "points",
    [
        pytest.param(POINTS, id="each"),
        # the intent is then of the same run; what the other points leave, "each" has, too
        pytest.param((ddl.AFTER_EXECUTE,), id=ddl.AFTER_EXECUTE, marks=pytest.mark.chaos),
    ],
)
@pytest.mark.parametrize("flavour", BOTH)
@pytest.mark.guarantee("ddl")
def test_killed_driver_executes_each_ddl_statement_once(
    request: pytest.FixtureRequest, flavour: Flavour, points: tuple[str, ...], tmp_path: Path
) -> None:
    """SIGKILL at each point of each statement; the next process decides from the state of the named tables."""
    server: DatabaseServer = request.getfixturevalue(f"{flavour}_server")
    name, script = f"kinds{next(_names)}", script_for(flavour)
    noted = tmp_path / "executed"
    apply_in_killed_processes(endpoint_of(server), name, flavour, points, noted)
    executed = Counter(map(int, noted.read_text().split()))
    harmless = {
        2 + number for number, sql in enumerate(script) if any(word in sql for word in REPEATABLE)
    }
    wrong = {seq: times for seq, times in executed.items() if times != 1 and seq not in harmless}
    assert wrong == {}
    assert len(executed) == len(
        script
    )  # one line of the script is a row; CREATE DATABASE comes in addition
    assert _tables(server, name) == _expected(server, name, script)


def _expected(server: DatabaseServer, name: str, script: list[str]) -> dict[str, object]:
    expected = f"{name}_expected"
    server.execute(f"CREATE DATABASE {expected}")
    for sql in script:
        text = "INSERT INTO a VALUES (1, 1)" if sql == INSERT else sql.format(name=expected)
        server.execute(text, db=expected)
    return _tables(server, expected)


def _tables(server: DatabaseServer, database: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for (which,) in server.execute("SHOW TABLES", db=database):
        shown = server.execute(f"SHOW CREATE TABLE {which}", db=database)[0][1]
        found[str(which)] = (shown, server.execute(f"SELECT * FROM {which}", db=database))
    found["databases"] = len(server.execute(f"SHOW DATABASES LIKE '{database}%'"))
    return found


# ---- during a statement --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flavour",
    BOTH,
)
def test_interrupted_ddl_statement_is_executed_once(
    new_server: NewServer, flavour: Flavour
) -> None:
    """The driver's connection is cut, then the server is killed, while a statement runs."""
    server = new_server(flavour)
    server.execute("CREATE DATABASE middle")
    server.execute("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v CHAR(200))", db="middle")
    server.execute("INSERT INTO t (v) VALUES ('x')", db="middle")
    for _ in range(15):
        server.execute("INSERT INTO t (v) SELECT v FROM t", db="middle")
    stream = RecordStream()
    stream.ddl("ALTER TABLE t ADD INDEX (v), ALGORITHM=COPY", database="middle")
    for number, end in enumerate((_cut_connection, _kill_server)):
        while not (
            codes := _codes_when_it_dies(server, name := f"middle{next(_names)}", stream, end)
        ):
            # the statement ended too early: repeat with twice as many rows
            server.execute(f"ALTER TABLE t DROP INDEX {('v', 'v_2')[number]}", db="middle")
            server.execute("INSERT INTO t (v) SELECT v FROM t", db="middle")
        assert codes == ["MR-5001"]
        Supervised(endpoint_of(server), apply_task(name), stream).run()
        found = server.execute("SHOW INDEX FROM t WHERE Column_name = 'v'", db="middle")
        assert len(found) == 1 + number
        assert not server.execute("SELECT * FROM millrace.ddl_intent")


def _codes_when_it_dies(
    server: DatabaseServer,
    name: str,
    stream: RecordStream,
    end: Callable[[DatabaseServer, BadLine], object],
) -> list[str]:
    """The codes of a run whose connection or server ends during its statement; the server runs again afterwards."""
    failures: list[MillraceError] = []
    with BadLine(server) as line:
        task = Supervised(line.endpoint, apply_task(name), stream)
        running = threading.Thread(target=_fail, args=(task, failures))
        running.start()
        eventually(lambda: _is_altering(server) or not running.is_alive())
        end(server, line)
        running.join()
    if not server.is_alive():
        server.start()
    return [failure.code for failure in failures]


def _cut_connection(_: DatabaseServer, line: BadLine) -> None:
    line.cut()


def _kill_server(server: DatabaseServer, _: BadLine) -> None:
    server.kill()


def _fail(task: Supervised, failures: list[MillraceError]) -> None:
    try:
        task.run_once()
    except Retryable as exc:
        failures.append(exc)


def _is_altering(server: DatabaseServer) -> bool:
    return bool(
        server.execute(
            "SELECT 1 FROM information_schema.PROCESSLIST WHERE STATE LIKE 'copy to tmp%' AND INFO LIKE 'ALTER%'"
        )
    )
