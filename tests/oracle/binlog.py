"""The source's binlog as python-mysql-replication reads it, and the topic compared with it row by row.

Compared: source transactions, tables, operations, statements, and every value of both images that the decoder keeps.
It does not keep (``_LOST``): zero dates (None), zero timestamps (1970), the fraction of a negative TIME, the empty SET,
bytes that are no text (left out; so they are in ours before the comparison).
"""

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.constants import FIELD_TYPE
from pymysqlreplication.event import GtidEvent, MariadbGtidEvent, QueryEvent
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from millrace.deploy.servers import DatabaseServer
from tests.oracle.books import is_about
from tests.oracle.record import Change, Ddl, Image, Message, harm

READER_ID = 987_655
_LOST = object()
_NO_DDL = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "XA", "#")
_GTID_FLAGS, _COLLATIONS = 130, 131
_READ_VARIABLE = QueryEvent._read_status_vars_value_for_key
_ROWS = {WriteRowsEvent: "c", UpdateRowsEvent: "u", DeleteRowsEvent: "d"}


@dataclass(frozen=True, slots=True)
class Column:
    """The properties of a column in the binlog that its values depend on."""

    kind: int
    charset: str | None = None
    fraction: int = 0  # digits of a second's


@dataclass(frozen=True, slots=True)
class Logged:
    """A row or a statement in the binlog; ``columns`` by name."""

    gtid: str
    change: Change | Ddl
    columns: Mapping[str, Column]


@dataclass(frozen=True, slots=True)
class Login:
    """The address of a server over TCP, and an account that may replicate."""

    host: str
    port: int
    user: str
    password: str


def status_of(server: DatabaseServer) -> tuple[str, int]:
    """File and position at which the server's binlog ends."""
    words = "BINARY LOG" if server.flavour == "mysql" else "MASTER"
    ((file, position, *_),) = server.execute(f"SHOW {words} STATUS")
    return str(file), int(str(position))


def _read_variable(event: Any, key: int) -> None:
    """Read a status variable of a QueryEvent, also the two of MariaDB 11 that the decoder does not know."""
    if key == _GTID_FLAGS:
        event.packet.read(2)
    elif key == _COLLATIONS:
        event.packet.read(4 * event.packet.read_uint8())
    else:
        _READ_VARIABLE(event, key)


QueryEvent._read_status_vars_value_for_key = _read_variable


def read_binlog(login: Login, file: str, position: int, database: str) -> Iterator[Logged]:
    """Yield rows and statements of one database from ``start`` to the end of the binlog, in order.

    The decoder's own filter is not used: it ignores the table maps of other databases, and after a restart a server
    may give one of their tables an ID that a table of this database had.
    """
    stream = BinLogStreamReader(
        connection_settings={
            "host": login.host,
            "port": login.port,
            "user": login.user,
            "password": login.password,
        },
        server_id=READER_ID,
        only_events=[GtidEvent, MariadbGtidEvent, QueryEvent, *_ROWS],
        log_file=file,
        log_pos=position,
        resume_stream=True,
        blocking=False,
        ignore_decode_errors=True,
        verify_checksum=True,
    )
    gtid = ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # its own calls of PyMySQL
            while (event := stream.fetchone()) is not None:
                if isinstance(event, (GtidEvent, MariadbGtidEvent)):
                    gtid = str(event.gtid)
                elif isinstance(event, QueryEvent):
                    ddl = Ddl(event.schema.decode(), event.query)
                    is_ddl = not ddl.sql.upper().startswith(_NO_DDL)
                    if is_ddl and is_about(ddl, database):
                        yield Logged(gtid, ddl, {})
                elif event.schema == database:
                    yield from _rows(gtid, event)
    finally:
        stream.close()


def _rows(gtid: str, event: Any) -> Iterator[Logged]:
    columns = {
        column.name: Column(column.type, column.character_set_name, getattr(column, "fsp", 0))
        for column in event.columns
    }
    op = _ROWS[type(event)]
    for row in event.rows:
        before = row["before_values"] if op == "u" else row["values"] if op == "d" else None
        after = row["after_values"] if op == "u" else row["values"] if op == "c" else None
        yield Logged(gtid, Change(event.schema, event.table, op, before, after), columns)


def _statement(change: object) -> object:
    """A form for comparison: a member killed in a DROP TABLE logs it with IF EXISTS and a comment when it restarts."""
    if not isinstance(change, Ddl) or not change.sql.startswith("DROP TABLE"):
        return change
    return change.database, [word for word in change.words if word not in ("IF", "EXISTS")]


class BinlogOracle:
    """Compares every message fed to it with ``logged``. ``values_compared`` counts."""

    def __init__(self, database: str, logged: Iterable[Logged]) -> None:
        self.rows_compared = 0
        self.values_compared = 0
        self.values_lost = 0
        self._database = database
        self._logged = iter(logged)

    def feed(self, message: Message) -> None:
        """Check the next message; those of other databases are skipped."""
        if not concerns(message, self._database):
            return
        logged = next(self._logged, None)
        if logged is None:
            raise harm(message, f"is not in the binlog: {message.change}")
        if logged.gtid != message.gtid:
            raise harm(message, f"{message.change}; in the binlog follows {_shown(logged)}")
        ours, theirs = message.change, logged.change
        if isinstance(theirs, Ddl) or isinstance(ours, Ddl):
            if _statement(ours) != _statement(theirs):
                raise harm(message, f"{ours}; in the binlog follows {_shown(logged)}")
            return
        assert ours is not None
        if (ours.table, ours.op) != (theirs.table, theirs.op):
            raise harm(message, f"{ours.op} {ours.table}; in the binlog follows {_shown(logged)}")
        self.rows_compared += 1
        for what, mine, logs in (
            ("before", ours.before, theirs.before),
            ("after", ours.after, theirs.after),
        ):
            self._compare(message, f"{what} of {ours.table}", mine, logs, logged.columns)

    def finish(self) -> None:
        """Check the end, after the last message of a topic at rest."""
        left = next(self._logged, None)
        assert left is None, f"in the binlog and not in the topic: {_shown(left)}"
        assert self.values_compared, "nothing was compared"

    def _compare(
        self,
        message: Message,
        what: str,
        ours: Image,
        theirs: Image,
        columns: Mapping[str, Column],
    ) -> None:
        if ours is None or theirs is None:
            if ours is not theirs:
                raise harm(message, f"{what}: {ours}; in the binlog {theirs}")
            return
        if list(ours) != list(theirs):
            raise harm(message, f"{what}: columns {list(ours)}; in the binlog {list(theirs)}")
        for name, value in ours.items():
            expected = _reads(columns[name], theirs[name], value)
            if expected is _LOST:
                self.values_lost += 1
            elif expected == _plain(columns[name], value):
                self.values_compared += 1
            else:
                raise harm(message, f"{what}, {name}: {value!r}; in the binlog {theirs[name]!r}")


def concerns(message: Message, database: str) -> bool:
    """Whether a message is a row or statement of this database."""
    change = message.change
    if isinstance(change, Ddl):
        return is_about(change, database)
    return change is not None and change.database == database


def _shown(logged: Logged) -> str:
    return f"{logged.gtid}: {logged.change}"


def _plain(column: Column, ours: Any) -> Any:
    """Convert a record's value to the form that decoder values are converted to."""
    if ours is None:
        return None
    if column.kind == FIELD_TYPE.JSON:
        return json.loads(ours)
    if column.kind in _TEXTS and column.charset != "binary":
        return _legible(column, ours)
    return ours


_TEXTS = (FIELD_TYPE.VARCHAR, FIELD_TYPE.STRING, FIELD_TYPE.VAR_STRING, FIELD_TYPE.BLOB)


def _legible(column: Column, ours: str | bytes) -> str:
    """Remove the characters that Python's codec of the character set does not know."""
    codec = {"latin1": "cp1252", "utf8mb3": "utf8", "utf8mb4": "utf8"}.get(
        str(column.charset), str(column.charset)
    )
    if isinstance(ours, bytes):
        return ours.decode(codec, "ignore")
    return ours.encode(codec, "ignore").decode(codec)


def _reads(column: Column, theirs: Any, ours: Any) -> Any:
    """Convert the decoder's value to the form in a record; ``_LOST`` if the decoder does not keep it."""
    kind = column.kind
    if theirs is None:
        lost = (FIELD_TYPE.SET, FIELD_TYPE.DATE, FIELD_TYPE.DATETIME2)
        return _LOST if ours is not None and kind in lost else None
    if ours is None:
        return theirs
    if kind == FIELD_TYPE.BIT:
        return int(theirs, 2).to_bytes(len(ours), "big")
    if kind == FIELD_TYPE.SET:
        return ours if set(ours.split(",")) == theirs else theirs
    if kind == FIELD_TYPE.JSON:
        return _document(theirs)
    if kind == FIELD_TYPE.TIME2:
        return _time(column, theirs, ours)
    if isinstance(theirs, datetime):
        is_zero = theirs == datetime(1970, 1, 1)  # noqa: DTZ001 (the decoder's have no zone)
        return _LOST if is_zero else _cut(theirs.strftime("%Y-%m-%d %H:%M:%S.%f"), column)
    if isinstance(theirs, date):
        return theirs.isoformat()
    if column.charset == "binary" and isinstance(ours, bytes):
        content = theirs or b""  # "" for no bytes
        return (
            content.ljust(len(ours), b"\0") if kind == FIELD_TYPE.STRING else content
        )  # BINARY(n)
    return theirs


def _document(theirs: Any) -> Any:
    if isinstance(theirs, dict):
        return {_document(key): _document(value) for key, value in theirs.items()}
    if isinstance(theirs, list):
        return [_document(value) for value in theirs]
    return theirs.decode() if isinstance(theirs, bytes) else theirs


def _cut(text: str, column: Column) -> str:
    """Cut six digits to the column's fraction."""
    return text[: len(text) - 6 + column.fraction].removesuffix(".")


def _time(column: Column, theirs: timedelta, ours: str) -> Any:
    if ours.startswith("-") and "." in ours:
        return _LOST
    seconds, micros = divmod(abs(theirs) // timedelta(microseconds=1), 1_000_000)
    sign = "-" if theirs < timedelta() else ""
    text = f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}"
    return _cut(text, column)
