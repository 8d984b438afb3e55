"""The servers' own plans of the statements that the product sends.

``explained`` asks for the plan of each SELECT, UPDATE and DELETE just before the product sends it, whatever part of the
product that is. So a new form of a statement is explained, too.
"""

import re
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pymysql
import pytest
from pymysql.cursors import DictCursor

from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import MySqlSession
from millrace.schemas.gtid import Flavour
from millrace.text_protocol.arriving import RowPackets

_EXPLAINED = re.compile(r"\s*(?:SELECT|UPDATE|DELETE|INSERT\b.*\bSELECT)\b(?! HISTORY)", re.DOTALL)
_TEXT_MAX = 300
_SCANS = ("ALL", "index")


@dataclass(frozen=True, slots=True)
class Access:
    """How a server reads one table for one statement. ``rows``: its estimate."""

    statement: str
    table: str
    kind: str
    key: str
    rows: int
    extra: str

    @property
    def is_scan(self) -> bool:
        """Whether it may read rows that the statement does not need, to the end of the table or index."""
        if self.kind == "index" and self.ends_early and "Using where" not in self.extra:
            return False
        return self.kind in _SCANS

    @property
    def ends_early(self) -> bool:
        """Whether it ends after LIMIT rows, because it needs no order or reads in it."""
        return self.has_limit and "filesort" not in self.extra and "temporary" not in self.extra

    @property
    def has_limit(self) -> bool:
        """Whether the statement ends after a number of rows."""
        return " LIMIT " in self.statement


@dataclass
class Plans:
    """The plans of the statements that name a table of ``databases``."""

    connection: "pymysql.connections.Connection[DictCursor]"
    flavour: Flavour
    databases: Collection[str]
    accesses: list[Access] = field(default_factory=list)
    statements: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def explain(self, sql: str | bytes) -> None:
        """Add the plan of a statement."""
        if isinstance(sql, str):
            sql = sql.encode()
        text = sql.decode(errors="replace")
        if not _EXPLAINED.match(text) or not any(self._names(text)):
            return
        with self._lock, self.connection.cursor() as cursor:
            self.statements += 1
            form = b"FORMAT=TRADITIONAL " if self.flavour is Flavour.MYSQL else b""
            cursor.execute(cast(str, b"EXPLAIN " + form + sql))
            for row in cursor.fetchall():
                self._add(text, row)

    def _names(self, text: str) -> Iterator[bool]:
        for database in self.databases:
            yield f"`{database}`." in text or f" {database}." in text

    def _add(self, text: str, row: dict[str, Any]) -> None:
        table, kind = row["table"], row["type"]
        if not table or table.startswith("<") or not kind or row["select_type"] == "INSERT":
            return
        shown = text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]} … {text[-_TEXT_MAX:]}"
        access = Access(
            shown, table, kind, row["key"] or "", int(row["rows"] or 0), row["Extra"] or ""
        )
        self.accesses.append(access)

    def scans(self, *, rows_max: int) -> list[Access]:
        """The accesses that scan, or that read more than so many rows."""
        return [
            each
            for each in self.accesses
            if each.is_scan or (each.rows > rows_max and not each.ends_early)
        ]

    def shown(self, *, rows_max: int) -> str:
        """The same for people, a line for each."""
        lines = {
            f"{each.table}: {each.kind} {each.rows} {each.extra} {each.statement}"
            for each in self.scans(rows_max=rows_max)
        }
        return "\n".join(sorted(lines))


@contextmanager
def explained(server: DatabaseServer, *databases: str) -> Iterator[Plans]:
    """The plans of all statements about tables of these databases that this process sends to the server."""
    connection = pymysql.connect(
        unix_socket=str(server.socket),
        user="root",
        charset="utf8mb4",
        autocommit=True,
        ssl_disabled=True,
        cursorclass=DictCursor,
    )
    plans = Plans(connection, server.flavour, databases)
    query, packets = pymysql.connections.Connection.query, MySqlSession.read_packets

    def explain_query(self: Any, sql: str | bytes, unbuffered: bool = False) -> int:
        if self.port == server.port and self is not connection:
            plans.explain(sql)
        return query(self, cast(str, sql), unbuffered)

    def explain_packets(self: MySqlSession, sql: str | bytes) -> RowPackets:
        if self.endpoint.port == server.port:
            plans.explain(sql)
        return packets(self, sql)

    # the driver's call for each statement, and our calls that read packets themselves
    with connection, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pymysql.connections.Connection, "query", explain_query)
        patch.setattr(MySqlSession, "read_packets", explain_packets)
        yield plans
