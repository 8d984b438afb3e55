"""DDL of every kind, applied by processes that are killed one after the other.

Each process is a fork of this one, resumes where the last one died, and dies by SIGKILL at the next point of the
next statement; the last one reaches the end.
"""

import os
import signal
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millrace import faults
from millrace.consumer.turn.warm_up import warm
from millrace.consumer.write.ddl import BEFORE_INTENT
from millrace.drivers.mysql.connection import Endpoint, MySqlSession
from millrace.schemas.gtid import Flavour
from tests.kit.apply.local import LocalRecords, apply_task, ignore, started_at
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream

INSERT = "INSERT"  # a row, between statements
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


def script_for(flavour: Flavour) -> list[str]:
    """Statements of all kinds, in an order in which each can be executed; ``{name}`` is the database."""
    return [*BOTH, *ONLY[flavour]]


@dataclass
class _Script:
    """The stream of a script, where each statement ends in it, and the seq of each statement."""

    name: str
    flavour: Flavour
    ends: list[int] = field(default_factory=list)
    seqs: dict[bytes, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        made = table(self.name, "a", integer("id"), integer("v"))
        self.stream = RecordStream(flavour=self.flavour)
        for sql in [f"CREATE DATABASE {self.name}", *script_for(self.flavour)]:
            if sql == INSERT:
                self.stream.insert(made, {"id": 1, "v": 1})
                self.stream.commit()
            else:
                statement = sql.format(name=self.name)
                self.stream.ddl(statement, database=self.name)
                self.seqs[statement.encode()] = self.stream.seq
                self.ends.append(len(self.stream.values))

    def apply(self, endpoint: Endpoint, *, statement: int, fault: str) -> None:
        """One run from the last one's progress, one micro-batch per statement; the fault is armed for ``statement``."""
        applier = started_at(endpoint, apply_task(self.name))
        first = 0
        for number, end in enumerate(self.ends):
            faults.arm(fault if number == statement else "")
            if end > applier.mark.next_offset:
                values = self.stream.values[first:end]
                applier.process(LocalRecords(values, first), ignore)
            first = end
        applier.close()


def apply_in_killed_processes(
    endpoint: Endpoint, name: str, flavour: Flavour, points: Collection[str], executed: Path
) -> None:
    """Apply the whole script. ``executed`` gets a line with the seq of each statement before its execution.

    A process that dies before the intent leaves nothing, whatever the statement: beside other points, it does so once.
    """
    warm()  # the forks have the kernels
    script = _Script(name, flavour)
    for statement in range(len(script.ends)):
        for point in points:
            if point == BEFORE_INTENT and statement and len(points) > 1:
                continue
            status = _forked(script, endpoint, executed, statement=statement, fault=f"{point}:kill")
            assert status == -signal.SIGKILL, (statement, point, status)
    assert _forked(script, endpoint, executed, statement=0, fault="") == 0


def _forked(
    script: _Script, endpoint: Endpoint, executed: Path, *, statement: int, fault: str
) -> int:
    child = os.fork()
    if child == 0:
        try:
            _note_executed(script, executed)
            script.apply(endpoint, statement=statement, fault=fault)
        except BaseException:  # noqa: BLE001 - the child must not run the parent's code
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _note_executed(script: _Script, executed: Path) -> None:
    query = MySqlSession.query

    def noting(session: MySqlSession, sql: str | bytes, *values: Any) -> Any:
        if sql in script.seqs:
            with executed.open("a") as file:
                file.write(f"{script.seqs[sql]}\n")
        return query(session, sql, *values)

    setattr(MySqlSession, "query", noting)  # noqa: B010 - mypy allows no assignment to a method
