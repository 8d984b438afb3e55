"""The driver, its connection or the server die around and inside DDL of every kind: each statement is executed once.

The oracle is a database in which the same statements were executed in turn, by hand.
"""

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from itertools import count

import pytest

from consumer import ddl
from deploy.servers import DatabaseServer
from millrace.errors import MillraceError, Retryable
from schemas.gtid import Flavour
from tests.fixtures.servers import FLAVOURS, NewServer
from tests.kit.apply.ddl_process import INSERT, script_for
from tests.kit.apply.faults import BadLine, Supervised
from tests.kit.apply.local import apply_task, endpoint_of
from tests.kit.apply.topic import RecordStream
from tests.kit.paths import ROOT
from tests.kit.waiting import eventually

REPEATABLE = (
    "IF NOT EXISTS",
    "IF EXISTS",
)  # their state tells nothing, and a repetition changes nothing
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
        *(pytest.param((point,), id=point, marks=pytest.mark.chaos) for point in POINTS),
    ],
)
@pytest.mark.parametrize("flavour", BOTH)
@pytest.mark.guarantee("ddl")
def test_killed_driver_executes_each_ddl_statement_once(
    request: pytest.FixtureRequest, flavour: Flavour, points: tuple[str, ...]
) -> None:
    """A process dies by SIGKILL at each point of each statement; the next finds out by the state of what it names."""
    server: DatabaseServer = request.getfixturevalue(f"{flavour}_server")
    name, script = f"kinds{next(_names)}", script_for(flavour)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.kit.apply.ddl_process",
            str(server.port),
            name,
            flavour,
            *points,
        ],
        cwd=ROOT,
        capture_output=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    executed = Counter(map(int, done.stdout.split()))
    harmless = {
        2 + number for number, sql in enumerate(script) if any(word in sql for word in REPEATABLE)
    }
    wrong = {seq: times for seq, times in executed.items() if times != 1 and seq not in harmless}
    assert wrong == {}
    assert len(executed) == len(script)  # one line is a row, and there is the database
    assert _tables(server, name) == _by_hand(server, name, script)


def _by_hand(server: DatabaseServer, name: str, script: list[str]) -> dict[str, object]:
    hand = f"{name}_hand"
    server.execute(f"CREATE DATABASE {hand}")
    for sql in script:
        text = "INSERT INTO a VALUES (1, 1)" if sql == INSERT else sql.format(name=hand)
        server.execute(text, db=hand)
    return _tables(server, hand)


def _tables(server: DatabaseServer, database: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for (which,) in server.execute("SHOW TABLES", db=database):
        shown = server.execute(f"SHOW CREATE TABLE {which}", db=database)[0][1]
        found[str(which)] = (shown, server.execute(f"SELECT * FROM {which}", db=database))
    found["databases"] = len(server.execute(f"SHOW DATABASES LIKE '{database}%'"))
    return found


# ---- in the middle --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flavour",
    BOTH,
)
def test_interrupted_ddl_statement_is_executed_once(
    new_server: NewServer, flavour: Flavour
) -> None:
    """While it runs the driver's connection is cut, then the server is killed: executed once in the end."""
    server = new_server(flavour)
    server.execute("CREATE DATABASE middle")
    server.execute("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v CHAR(200))", db="middle")
    server.execute("INSERT INTO t (v) VALUES ('x')", db="middle")
    for _ in range(17):
        server.execute("INSERT INTO t (v) SELECT v FROM t", db="middle")
    stream = RecordStream()
    stream.ddl("ALTER TABLE t ADD INDEX (v), ALGORITHM=COPY", database="middle")
    for number, end in enumerate((_cut_the_line, _kill_the_server)):
        while not (
            codes := _codes_when_it_dies(server, name := f"middle{next(_names)}", stream, end)
        ):
            # it was through before we came: once more, with twice as many rows
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
    """What a run tells whose line or server ends while its statement runs; the server is there again."""
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


def _cut_the_line(_: DatabaseServer, line: BadLine) -> None:
    line.cut()


def _kill_the_server(server: DatabaseServer, _: BadLine) -> None:
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
