"""The driver, its connection or the server die around and inside DDL of every kind: each statement is executed once.

The oracle is a database in which the same statements were executed in turn, by hand.
"""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import pytest

from consumer import ddl
from consumer.target.connection import TargetConnection
from deploy.servers import DatabaseServer
from millrace.errors import MillraceError, Retryable
from schemas.control import DdlRecord
from schemas.gtid import Flavour
from schemas.statement import Statement
from tests.apply_faults import BadLine, Supervised
from tests.apply_local import apply_task, endpoint_of
from tests.apply_tables import integer, table
from tests.apply_topic import RecordStream
from tests.fix_servers import FLAVOURS, NewServer
from tests.waiting import eventually

BOTH = [
    "CREATE TABLE a (id INT PRIMARY KEY, v INT) AUTO_INCREMENT=7",
    "INSERT",
    "CREATE TABLE b LIKE a",
    "CREATE TABLE IF NOT EXISTS a (other INT)",
    "RENAME TABLE a TO x, b TO a, x TO b",
    "ALTER TABLE b ADD COLUMN s VARCHAR(9) DEFAULT 'x', ADD INDEX (v)",
    "ALTER TABLE b ADD INDEX (v)",
    "ALTER TABLE b CHANGE s t VARCHAR(30), DEFAULT CHARSET latin1",
    "CREATE UNIQUE INDEX u ON b (id, v)",
    "DROP INDEX v ON b",
    "ALTER TABLE b RENAME TO c, COMMENT 'was b'",
    "ALTER TABLE a ADD FOREIGN KEY f (v) REFERENCES c (id)",
    "ALTER TABLE c ENGINE=InnoDB",
    "CREATE TABLE p (id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (9))",
    "ALTER TABLE p ADD PARTITION (PARTITION p1 VALUES LESS THAN (99))",
    "CREATE TABLE q (id INT PRIMARY KEY)",
    "ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE q",
    "ALTER TABLE p TRUNCATE PARTITION p1",
    "TRUNCATE TABLE a",
    "DROP TABLE p, q",
    "DROP TABLE IF EXISTS nowhere",
    "CREATE DATABASE {name}_2 DEFAULT CHARSET latin1",
    "RENAME TABLE a TO {name}_2.a",
    "ALTER DATABASE {name}_2 DEFAULT CHARSET utf8mb4",
    "CREATE TABLE {name}_2.`d e` (id INT)",
    "DROP DATABASE {name}_2",
]
ONLY = {
    Flavour.MARIADB: ["CREATE OR REPLACE TABLE c (id INT PRIMARY KEY, n INT)"],
    Flavour.MYSQL: ["ALTER TABLE c RENAME COLUMN t TO w", "ALTER TABLE c ALTER INDEX u INVISIBLE"],
}
REPEATABLE = (
    "IF NOT EXISTS",
    "IF EXISTS",
)  # their state tells nothing, and a repetition changes nothing
POINTS = ("before its intent", ddl.AFTER_INTENT, ddl.AFTER_EXECUTE)
SOON = [
    (Flavour.MARIADB, ddl.AFTER_EXECUTE),
    (Flavour.MYSQL, ddl.AFTER_INTENT),
]  # the others are chaos

_names = count(1)


class _KilledError(Exception):
    """Stands for kill -9."""


@dataclass
class _Death:
    """Dies once a statement at one point; counts executions."""

    point: str
    patch: pytest.MonkeyPatch

    def __post_init__(self) -> None:
        self.executed: Counter[int] = Counter()
        self._died: set[int] = set()
        self._seq = 0
        execute, intend = ddl._execute, ddl._intend

        def intending(
            session: TargetConnection, owner: object, record: DdlRecord, state: object
        ) -> None:
            self._seq = record.source.seq
            self("before its intent")
            intend(session, owner, record, state)  # type: ignore[arg-type]

        def executing(session: TargetConnection, record: DdlRecord, statement: Statement) -> None:
            self.executed[record.source.seq] += 1
            execute(session, record, statement)

        self.patch.setattr(ddl, "_intend", intending)
        self.patch.setattr(ddl, "_execute", executing)
        self.patch.setattr(ddl, "fault_point", self)

    def __call__(self, point: str) -> None:
        if point == self.point and self._seq not in self._died:
            self._died.add(self._seq)
            raise _KilledError


@pytest.mark.parametrize(
    ("flavour", "point"),
    [
        pytest.param(flavour, point, marks=[] if (flavour, point) in SOON else pytest.mark.chaos)
        for flavour in FLAVOURS
        for point in POINTS
    ],
)
def test_ddl_of_every_kind_is_executed_once_wherever_the_driver_dies(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, flavour: Flavour, point: str
) -> None:
    """Each statement's run is killed at the point; the next finds out by the state of what the statement names."""
    server: DatabaseServer = request.getfixturevalue(f"{flavour}_server")
    name = f"kinds{next(_names)}"
    stream, script = RecordStream(flavour=flavour), [*BOTH, *ONLY[flavour]]
    made = table(name, "a", integer("id"), integer("v"))
    stream.ddl(f"CREATE DATABASE {name}")
    for sql in script:
        if sql == "INSERT":
            stream.insert(made, {"id": 1, "v": 1})
            stream.commit()
        else:
            stream.ddl(sql.format(name=name), database=name)
    death = _Death(point, monkeypatch)
    task = Supervised(endpoint_of(server), apply_task(name), stream)
    deaths = 0
    while True:
        try:
            task.run()
            break
        except _KilledError:
            deaths += 1
    assert deaths == len(script)  # one line is a row, and there is the database
    harmless = {
        2 + number for number, sql in enumerate(script) if any(word in sql for word in REPEATABLE)
    }
    wrong = {
        seq: times for seq, times in death.executed.items() if times != 1 and seq not in harmless
    }
    assert wrong == {}
    assert len(death.executed) == len(script)
    assert _tables(server, name) == _by_hand(server, name, script)


def _by_hand(server: DatabaseServer, name: str, script: list[str]) -> dict[str, object]:
    hand = f"{name}_hand"
    server.execute(f"CREATE DATABASE {hand}")
    for sql in script:
        text = "INSERT INTO a VALUES (1, 1)" if sql == "INSERT" else sql.format(name=hand)
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
    [
        pytest.param(flavour, marks=pytest.mark.chaos if flavour is Flavour.MYSQL else [])
        for flavour in FLAVOURS
    ],
)
def test_a_statement_that_dies_in_its_middle_is_executed_once(
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
        eventually(lambda: _is_altering(server) or not running.is_alive(), timeout_s=120)
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
