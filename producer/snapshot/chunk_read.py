"""Reads one chunk of a table on a member, between two GTID sets that are known.

    flavour    at least visible to the read (``since``)               at most visible to it (``until``)
    MySQL      gtid_executed before it: updated after the commit      gtid_owned, then gtid_executed after it: a
               is visible                                             transaction is visible before it is in
                                                                      gtid_executed, but is owned then
    MariaDB    the binlog position of its consistent snapshot         gtid_binlog_pos after it, which is updated
                                                                      before the commit is visible

The read waits until ``since`` contains the position that the caller names. The structure of the table is read in
between, too: a statement that changes it later is in the stream after that position, and the caller then discards the
chunk. A chunk ends after a number of rows or bytes; its last key is the border of the next one.

Not done here: the thread (``reader``), the place of the chunk in the stream (``insertion_plan``).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from millrace.drivers.mysql.catalog import (
    CatalogTable,
    read_collations,
    read_databases,
    read_names,
    read_sizes,
    read_table,
)
from millrace.drivers.mysql.chunks.chunk import EVERYTHING, Border, Chunk
from millrace.drivers.mysql.chunks.key import FORCED
from millrace.drivers.mysql.connection import MySqlSession
from millrace.drivers.mysql.errors import NO_COLUMN, NO_DATABASE, NO_TABLE, TABLE_CHANGED
from millrace.drivers.mysql.grants import Role, as_grant_pattern, held_grants, needed_grants, shown
from millrace.drivers.mysql.members import ask_position, with_unlogged
from millrace.drivers.mysql.table_schema import table_schema
from millrace.errors import Fatal, MillraceError
from millrace.producer.convert.table_filter import NameFilter
from millrace.producer.snapshot.encoder import EncodedRows, ReadPlace, RowEncoder
from millrace.producer.snapshot.images import Images, read_images
from millrace.producer.snapshot.select_list import SESSION, Selection
from millrace.producer.snapshot.structure import refusal, snapshot_key
from millrace.producer.source.connection import Login, connect_member
from millrace.schemas.documents import Member
from millrace.schemas.gtid import Flavour, GtidPosition, GtidSet
from millrace.schemas.record.control import Origin
from millrace.schemas.snapshot import Name
from millrace.schemas.sql.quoting import table_name
from millrace.schemas.table.structure import TableSchema

READ_TIMEOUT_S = 600.0  # a condition may match few rows of a large table
WAIT_S = 0.005  # between two looks at the member's position
# One chunk: about 2 ms of the converter's thread, 7 if its table changes meanwhile. So much later are later changes.
ROWS_MAX = 10_000
BYTES_MAX = 4 << 20
_CHANGED = frozenset({NO_COLUMN, NO_TABLE, NO_DATABASE, TABLE_CHANGED})  # between two statements


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A chunk to read. ``number`` is that of ``run``: an answer to an earlier run is not used.

    ``at``: the snapshot, the chunk and a published source transaction. ``after``: the border before it, () for the
    first chunk. ``covered``: what the read must see.
    """

    run: int
    name: Name
    after: tuple[str, ...]
    where: str
    covered: GtidPosition
    at: ReadPlace


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """``border``: the key of its last row. ``until``: the read saw nothing beyond. ``is_last``: no chunk follows."""

    rows: EncodedRows
    border: tuple[str, ...]
    until: GtidPosition
    is_last: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """The table can't be read. ``is_gone``: it does not exist. ``until``: as of a chunk."""

    why: str
    until: GtidPosition
    is_gone: bool = False


@dataclass(slots=True)
class _Size:
    """How many rows the next chunk asks for: as many as probably have half of ``BYTES_MAX``."""

    rows: int = 500

    def note(self, rows: int, size_bytes: int, limit: int) -> None:
        """After a chunk that asked for ``limit`` rows and got so many, with images of so many bytes."""
        if rows:
            fitting = BYTES_MAX // 2 * rows // max(size_bytes, 1)
            self.rows = max(1, min(ROWS_MAX, 2 * limit, fitting))


@dataclass(slots=True)
class _LastTable:
    table: CatalogTable
    schema: TableSchema
    encoder: RowEncoder
    selection: Selection


@dataclass(slots=True)
class MemberSession:
    """A session on a member that reads chunks. Used by one thread."""

    connection: MySqlSession
    origin: Origin
    may_wait: Callable[[], bool]
    _last: _LastTable | None = None
    _size: _Size = field(default_factory=_Size)
    _collations: Mapping[str, int] = field(default_factory=dict)
    is_spent: bool = False  # the rest of a result was not read

    @classmethod
    def open(
        cls, member: Member, login: Login, origin: Origin, may_wait: Callable[[], bool]
    ) -> "MemberSession":
        connection = connect_member(member, login, timeout_s=READ_TIMEOUT_S, reads_tables=True)
        try:
            for statement in SESSION:
                connection.named(statement)
        except BaseException:
            connection.close()
            raise
        return cls(connection, origin, may_wait)

    def names(self, filter_: NameFilter, patterns: Sequence[str]) -> dict[Name, int]:
        """The tables that the task publishes, each with about its rows. Errors: see ``published_names``."""
        names = published_names(self.connection, filter_, patterns)
        sizes = read_sizes(self.connection, sorted({database for database, _ in names}))
        return {name: sizes.get(name, (0, 0))[0] for name in names}

    def read(self, request: ReadRequest) -> ReadChunk | Refused | None:
        """The chunk, or why there is none.

        None if the caller must not wait any more, if the table changed meanwhile, or if the rows were too large.
        """
        if not self._begin(request.covered):
            return None
        try:
            return self._read(request)
        except MillraceError as error:
            if error.errno in _CHANGED or error.code == "MR-5023":
                self.is_spent = True
                return None
            raise
        finally:
            if self.origin.connector is Flavour.MARIADB and not self.is_spent:
                self.connection.named("ROLLBACK")

    def _begin(self, covered: GtidPosition) -> bool:
        """Wait until a read sees all of ``covered``; False if the caller must not wait any more."""
        while self.may_wait():
            if self._visible().includes(covered):
                return True
            time.sleep(WAIT_S)
        return False

    def _visible(self) -> GtidPosition:
        if self.origin.connector is Flavour.MYSQL:
            return ask_position(self.connection)
        self.connection.named("ROLLBACK")
        self.connection.named("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self.connection.named("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        rows = self.connection.named("SHOW STATUS LIKE 'binlog_snapshot_%'")
        status = {str(row["Variable_name"]).lower(): row["Value"] for row in rows}
        place = (status["binlog_snapshot_file"], status["binlog_snapshot_position"])
        (row,) = self.connection.named(
            "SELECT BINLOG_GTID_POS(%s, %s) AS position, @@GLOBAL.gtid_slave_pos AS executed",
            (str(place[0]), int(place[1] or 0)),
        )
        return with_unlogged(str(row["position"] or ""), str(row["executed"] or ""))

    def _until(self) -> GtidPosition:
        """A set of all source transactions that a read before it may have seen."""
        if self.origin.connector is Flavour.MARIADB:
            return ask_position(self.connection)
        (row,) = self.connection.named("SELECT @@GLOBAL.gtid_owned AS owned")
        owned = GtidSet.parse_owned(str(row["owned"] or ""))
        executed = ask_position(self.connection)
        assert isinstance(executed, GtidSet)
        return executed | owned

    def _read(self, request: ReadRequest) -> ReadChunk | Refused | None:
        table = read_table(self.connection, request.name)
        if table is None:
            return Refused("it does not exist", self._until(), is_gone=True)
        if why := refusal(table):
            return Refused(why, self._until())
        last, key = self._of(table), snapshot_key(table)
        assert key is not None
        limit = self._size.rows
        statement = chunk_select(last.selection, table, request.after, request.where, limit)
        images = self._images(last, statement, len(key.columns))
        if self.is_spent:
            return None
        self._size.note(images.rows, len(images.octets), limit)
        until = self._until()
        place = request.at
        at = ReadPlace(place.snapshot, place.chunk, place.gtid, time.time_ns() // 1_000_000)
        rows = last.encoder.encode(images, at)
        return ReadChunk(rows, images.key, until, images.rows < limit)

    def _of(self, table: CatalogTable) -> _LastTable:
        """The encoder of this structure."""
        if self._last is None or self._last.table != table:
            self._collations = self._collations or read_collations(self.connection)
            schema = table_schema(table, self.origin.connector, self._collations)
            selection = Selection.of(table, schema)
            self._last = _LastTable(table, schema, RowEncoder(self.origin, selection), selection)
            self._size = _Size()
        return self._last

    def _images(self, last: _LastTable, statement: str, keys: int) -> Images:
        """The rows of a statement, with the key in the first ``keys`` columns.

        If they are too large, the session is spent, and the next chunk asks for fewer.
        """
        packets = self.connection.read_packets(statement)
        self.is_spent = True  # until the whole result is read
        images = read_images(packets, last.selection, keys=keys, bytes_max=BYTES_MAX)
        self.is_spent = images.is_cut
        if images.is_cut:
            self._size.rows = images.rows
        return images


def published_names(
    connection: MySqlSession, filter_: NameFilter, patterns: Sequence[str]
) -> list[Name]:
    """The tables that the task publishes, without views and sequences.

    Fatal MR-1005 if the account might not see all that the patterns match: the server hides tables without SELECT.
    """
    scopes = sorted({as_grant_pattern(pattern) for pattern in patterns})
    needed = needed_grants(Role.SNAPSHOT, connection.flavour, scopes)
    if missing := held_grants(connection).missing(needed):
        raise Fatal("MR-1005", f"a snapshot needs {shown(missing.grants)}", fix=missing.fix)
    databases = filter(filter_.admits_database, sorted(read_databases(connection)))
    return [name for name in read_names(connection, databases) if filter_.admits(*name)]


def chunk_select(
    selection: Selection, table: CatalogTable, after: tuple[str, ...], where: str, limit: int
) -> str:
    """The SELECT of a chunk: the key as texts, and the columns. ``after``, ``where``: as in ``ReadRequest``."""
    key = snapshot_key(table)
    assert key is not None, "a table without a key is refused"
    chunk = Chunk(0, Border(after) if after else None)
    conditions = [chunk.where(key)] + ([f"({where})"] if where else [])
    wanted = " AND ".join(part for part in conditions if part != EVERYTHING)
    name = table_name(table.database, table.table).decode()
    read = ", ".join(column.read for column in key.columns)
    return (
        f"SELECT {read}, {selection.columns} FROM {name}{FORCED}"
        + (f" WHERE {wanted}" if wanted else "")
        + f" ORDER BY {', '.join(column.sorting for column in key.columns)} LIMIT {limit}"
    )
