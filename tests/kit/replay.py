"""Replays a script of SQL statements beside a native replica: source → replica, and source → capture → target.

A script is a file of ``tests/reports``: statements as a server's own client reads them (with DELIMITER), and a first
line

    -- report: where the fault was reported; right: what must be equal; flavour: mysql|mariadb|both

The flavour may name what a native replica does with it (``replica: stops``), and the code that stops Millrace
(``stops: MR-5011``), each for one flavour or for both: ``replica: stops on mysql``.
"""

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from secrets import token_hex

from millrace.deploy.servers import DatabaseServer, DatabaseSet
from millrace.deploy.servers.client import client_command
from millrace.errors import MillraceError
from millrace.schemas.gtid import Flavour
from millrace.schemas.table.table_filter import SYSTEM_DATABASES
from tests.kit.apply.local import apply_task, run_once
from tests.kit.apply.topic import RecordStream
from tests.kit.binlog.session import LoggedSession, session
from tests.kit.ordeal.oracle import differences
from tests.kit.paths import ROOT
from tests.kit.waiting import eventually

REPORTS = ROOT / "tests" / "reports"
SCRIPT_S = 120.0
_HEAD = re.compile(r"-- report: (?P<report>.+?); right: .+?; flavour: (?P<flavour>\w+)(?P<more>.*)")


@dataclass(frozen=True)
class Report:
    """One script."""

    path: Path

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return self.path.stem

    @cached_property
    def text(self) -> str:
        """The statements."""
        return self.path.read_text()

    @cached_property
    def _head(self) -> re.Match[str]:
        head = _HEAD.fullmatch(self.text.split("\n", 1)[0])
        assert head, f"{self.path}: the first line has another form"
        return head

    @property
    def flavours(self) -> Sequence[Flavour]:
        """The flavours that it is for."""
        word = self._head["flavour"]
        return list(Flavour) if word == "both" else [Flavour(word)]

    def is_beyond_a_replica(self, flavour: Flavour) -> bool:
        """Whether a native replica of the flavour stops, or differs."""
        return bool(self._said("replica", flavour))

    def code(self, flavour: Flavour) -> str:
        """The code that stops Millrace; "" if it must not stop."""
        return self._said("stops", flavour)

    def _said(self, word: str, flavour: Flavour) -> str:
        said = re.search(rf"; {word}: (\S+)(?: on (\w+))?", self._head["more"])
        return said[1] if said and said[2] in (None, flavour) else ""


def reports(flavour: Flavour | None = None) -> list[Report]:
    """All scripts, or those for a flavour, by name."""
    found = [Report(path) for path in sorted(REPORTS.glob("*.sql"))]
    return [report for report in found if flavour is None or flavour in report.flavours]


@dataclass(frozen=True)
class Outcome:
    """The result of a script. ``replica``, ``target``: differences from the source; ``error``: why Millrace stopped."""

    replica: Sequence[str]
    target: Sequence[str]
    error: MillraceError | None

    @property
    def code(self) -> str:
        """The code of the error."""
        return self.error.code if self.error else ""


@dataclass(frozen=True)
class Stage:
    """A source with one native replica, and a target, all of one flavour."""

    sources: DatabaseSet
    target: DatabaseServer

    @property
    def source(self) -> DatabaseServer:
        """The server that executes the script."""
        return self.sources.primary

    @property
    def replica(self) -> DatabaseServer:
        """A native replica."""
        return self.sources.replicas[0]

    def play(self, report: Report) -> Outcome:
        """Execute the script on the source; compare the replica and the target. All its databases are dropped."""
        before = _databases(self.source)
        self.source.execute("FLUSH BINARY LOGS")
        (*_, newest) = self.source.execute("SHOW BINARY LOGS")
        try:
            _execute_script(self.source, report.text)
            databases = sorted(_databases(self.source) - before)
            stopped = self._replicate()
            error = self._apply(str(newest[0]))
            return Outcome(
                [*stopped, *self._compare(self.replica, databases)],
                self._compare(self.target, databases),
                error,
            )
        finally:
            self._clear(before)

    def _apply(self, file: str) -> MillraceError | None:
        with session(self.source) as cursor:
            logged = LoggedSession(self.source, cursor, "", file)
            try:
                stream = RecordStream(flavour=self.source.flavour, values=logged.record_values())
                run_once(self.target, apply_task(f"replay-{token_hex(4)}"), stream)
            except MillraceError as error:
                return error
        return None

    def _compare(self, server: DatabaseServer, databases: Sequence[str]) -> list[str]:
        wrong = {
            name for name in databases if _charset(server, name) != _charset(self.source, name)
        }
        both = [name for name in databases if name in _databases(server)]
        found = [line for name in both for line in differences(self.source, server, name)]
        return [*(f"database {name} differs" for name in sorted(wrong)), *found]

    def _replicate(self) -> list[str]:
        """Wait until each replica has everything or has stopped; the errors."""
        position = self.source.gtid_position()
        return [line for replica in self.sources.replicas for line in _followed(replica, position)]

    def _clear(self, before: set[str]) -> None:
        """Drop what the script created, and let the replicas continue after it."""
        for name in _databases(self.source) - before:
            self.source.execute(f"DROP DATABASE `{name}`")
        for name in _databases(self.target) - before:
            self.target.execute(f"DROP DATABASE `{name}`")
        if not self._replicate():
            return
        position = self.source.gtid_position()
        for replica in self.sources.replicas:
            with session(replica) as cursor:
                for sql in _SKIPS[replica.flavour]:
                    cursor.execute(sql.format(position=position))
                cursor.execute("SET sql_log_bin = 0")
                for name in _databases(replica) - before:
                    cursor.execute(f"DROP DATABASE `{name}`")
        assert not self._replicate()


def _followed(replica: DatabaseServer, position: str) -> list[str]:
    errors = list[str]()

    def is_settled() -> bool:
        is_there = replica.wait_for_position(position, timeout_s=0.5)
        errors[:] = [] if is_there else _errors(replica)
        return is_there or bool(errors)

    eventually(is_settled, what="the replica has everything or has stopped")
    return errors


_SKIPS = {
    Flavour.MARIADB: (
        "STOP SLAVE",
        "RESET MASTER",
        "SET GLOBAL gtid_slave_pos = '{position}'",
        "START SLAVE",
    ),
    Flavour.MYSQL: (
        "STOP REPLICA",
        "RESET BINARY LOGS AND GTIDS",
        "SET GLOBAL gtid_purged = '{position}'",
        "START REPLICA",
    ),
}


def _execute_script(server: DatabaseServer, text: str) -> None:
    program, *_ = client_command(Path(server.dialect.command()[0]), "", 0, user="root")
    command = (program, "--no-defaults", f"--socket={server.socket}", "--user=root", "--comments")
    done = subprocess.run(
        (*command, "--default-character-set=utf8mb4"),
        input=text.encode(),
        capture_output=True,
        timeout=SCRIPT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")


def _databases(server: DatabaseServer) -> set[str]:
    return {str(name) for (name,) in server.execute("SHOW DATABASES")} - SYSTEM_DATABASES


def _charset(server: DatabaseServer, database: str) -> Sequence[object]:
    """The default collation; empty without the database."""
    return server.execute(
        "SELECT DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = %s",
        (database,),
    )


def _errors(replica: DatabaseServer) -> list[str]:
    query = "SHOW SLAVE STATUS" if replica.flavour is Flavour.MARIADB else "SHOW REPLICA STATUS"
    with session(replica) as cursor:
        cursor.execute(query)
        (row,) = cursor.fetchall()
        names = [column[0] for column in cursor.description]
    status = dict(zip(names, row, strict=True))
    return [f"the replica stopped: {status['Last_SQL_Error']}"] if status["Last_SQL_Errno"] else []
