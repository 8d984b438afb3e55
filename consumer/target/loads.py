"""The state of loads, in the target's database ``millrace``. ``consumer.target.progress`` creates the tables.

    load_table    task, database_name, table_name: batch, state, begin_gtid, end_gtid, exact_gtid, chunk_key, structure,
                  rows_expected, rows_done, bytes_done, detail
    load_chunk    task, database_name, table_name, number: after_key, through_key, state, rows_done, bytes_done
                  the chunks of a table that is being copied; deleted when all are copied
    load_stream   task: begin_gtid, end_gtid, flavour
                  the range of the first load; ``end_gtid`` is "" until all its tables are copied

    state of a table    waits     the task's stream skips it; it is to be loaded
                        copies    rows are being copied, also skipped
                        copied    all rows are copied, also skipped
                        follows   a stream applies it: of batch ``FIRST`` the task's own, which does not skip it

Every row that the load read was committed in ``end_gtid``; of a table with ``exact_gtid``, exactly the transactions in
that set. A chunk's rows and its state are one target transaction, which checks the fence first.

Crash table: a chunk is ``found`` and has no row on the target, or ``copied`` and has all. The rows of a table without
chunks are deleted before it is copied again (``reset``). The first mark of a task and the end of its first load are one
target transaction (``begin_stream``).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from millrace.consumer.target.progress import DATABASE, Mark, Owner, check_fence, insert_mark
from millrace.drivers.mysql.catalog import TableKey
from millrace.drivers.mysql.chunks.chunk import Chunk, border_of_json, border_to_json
from millrace.drivers.mysql.connection import MySqlSession, Row
from millrace.errors import Fenced
from millrace.faults import fault_point, register
from millrace.schemas.gtid import Flavour, parse_gtid_set, unite

FIRST = 0  # the batch of the first load
SIDE = "#load"  # a task's side stream is TASK#load; no task has a name with this character
WAITS, COPIES, COPIED, FOLLOWS = "waits", "copies", "copied", "follows"
FOUND = "found"  # of a chunk
DETAIL_MAX = 500  # characters

AFTER_PLAN = register("load.after_plan")
AFTER_FOUND = register("load.after_found")
BEFORE_CHUNK_COMMIT = register("load.before_chunk_commit")
AFTER_CHUNK_COMMIT = register("load.after_chunk_commit")
AFTER_RESET = register("load.after_reset")
AFTER_TABLE = register("load.after_table")
BEFORE_STREAM = register("load.before_stream")
AFTER_STREAM = register("load.after_stream")

_COLUMNS = (
    "database_name, table_name, batch, state, begin_gtid, end_gtid, exact_gtid, chunk_key, structure,"
    " rows_expected, rows_done, bytes_done, detail"
)
_OF_TABLE = "task = %s AND database_name = %s AND table_name = %s"


@dataclass(frozen=True, slots=True)
class Amount:
    """Rows and bytes, as the target took them."""

    rows: int = 0
    bytes: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.rows + other.rows, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class Reach:
    """GTID sets as text: of one load, or of one table of it. ``exact``: "" for a table that is read in chunks."""

    begin: str
    end: str = ""
    exact: str = ""


@dataclass(frozen=True, slots=True)
class LoadTable:
    """One table of a load. ``chunk_key``: the name of its index; "": it is read in one snapshot.

    ``structure``: SHOW CREATE TABLE of the source; "" if it was not read. ``expected``: the server's estimate.
    """

    key: TableKey
    state: str
    reach: Reach
    chunk_key: str
    structure: str
    batch: int = FIRST
    expected: int = 0
    done: Amount = Amount()
    detail: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether it is read in one snapshot, at ``reach.exact``."""
        return not self.chunk_key


@dataclass(frozen=True, slots=True)
class LoadChunk:
    """One chunk of a table, and whether its rows are on the target."""

    chunk: Chunk
    is_copied: bool


@dataclass(frozen=True, slots=True)
class LoadStream:
    """The range of the first load. ``end`` is "" while it copies."""

    begin: str
    end: str
    flavour: Flavour


def task_of(stream: str) -> str:
    """The task of a stream. Tables and chunks are stored under its name, ranges and fences under the stream's."""
    return stream.removesuffix(SIDE)


def read_tables(connection: MySqlSession, task: str) -> dict[TableKey, LoadTable]:
    """The tables of the loads of a task, or of the task of a stream. The current transaction stays open."""
    return {table.key: table for table in _tables(connection, task, _COLUMNS)}


def stream_tables(connection: MySqlSession, task: str) -> list[LoadTable]:
    """The same, without their structure: a stream reads them in each turn."""
    return list(_tables(connection, task, _COLUMNS.replace("structure", "''")))


def _tables(connection: MySqlSession, task: str, columns: str) -> Iterator[LoadTable]:
    rows = connection.query(
        f"SELECT {columns} FROM {DATABASE}.load_table WHERE task = %s"
        " ORDER BY database_name, table_name",
        (task_of(task),),
    )
    return map(_table, rows)


def _table(row: Row) -> LoadTable:
    database, name, batch, state, begin, end, exact, chunk_key, structure, expected, *rest = row
    rows, size, detail = rest
    return LoadTable(
        (str(database), str(name)),
        str(state),
        Reach(str(begin), str(end), str(exact)),
        str(chunk_key),
        str(structure),
        _int(batch),
        _int(expected),
        Amount(_int(rows), _int(size)),
        str(detail),
    )


def read_stream(connection: MySqlSession, task: str) -> LoadStream | None:
    """The range of the first load; None before it, and after its end. The current transaction stays open."""
    rows = connection.query(
        f"SELECT begin_gtid, end_gtid, flavour FROM {DATABASE}.load_stream WHERE task = %s", (task,)
    )
    return LoadStream(str(rows[0][0]), str(rows[0][1]), Flavour(str(rows[0][2]))) if rows else None


def put_stream(connection: MySqlSession, name: str, stream: LoadStream) -> None:
    """Store the range of the stream ``name``, in place of an earlier one. Does not commit."""
    connection.query(
        f"REPLACE INTO {DATABASE}.load_stream VALUES (%s, %s, %s, %s)",
        (name, stream.begin, stream.end, str(stream.flavour)),
    )


def read_chunks(connection: MySqlSession, task: str, key: TableKey) -> list[LoadChunk]:
    """The known chunks of a table, in order. The current transaction stays open."""
    rows = connection.query(
        f"SELECT number, after_key, through_key, state FROM {DATABASE}.load_chunk WHERE {_OF_TABLE}"
        " ORDER BY number",
        (task_of(task), *key),
    )
    return [
        LoadChunk(
            Chunk(_int(number), border_of_json(after), border_of_json(through)), state == COPIED
        )
        for number, after, through, state in rows
    ]


def plan_load(
    connection: MySqlSession,
    owner: Owner,
    stream: LoadStream,
    tables: Iterable[LoadTable],
    *,
    also: Callable[[], None] = lambda: None,
) -> None:
    """Begin the first load: its range and its tables, in one target transaction, and what ``also`` does there."""
    check_fence(connection, owner)
    connection.query(
        f"INSERT INTO {DATABASE}.load_stream VALUES (%s, %s, %s, %s)",
        (owner.task, stream.begin, stream.end, str(stream.flavour)),
    )
    for table in tables:
        _insert(connection, task_of(owner.task), table)
    also()
    connection.commit()
    fault_point(AFTER_PLAN)


def _insert(connection: MySqlSession, task: str, table: LoadTable) -> None:
    values: tuple[object, ...] = (
        task,
        *table.key,
        table.batch,
        table.state,
        *(table.reach.begin, table.reach.end, table.reach.exact),
        table.chunk_key,
        table.structure,
        table.expected,
        *(table.done.rows, table.done.bytes),
        table.detail,
    )
    places = ", ".join(["%s"] * len(values))
    connection.query(
        f"INSERT INTO {DATABASE}.load_table (task, {_COLUMNS}) VALUES ({places})", values
    )


def save_found(
    connection: MySqlSession, owner: Owner, key: TableKey, chunks: Sequence[Chunk]
) -> None:
    """Chunks that were found, before they are copied."""
    check_fence(connection, owner)
    for chunk in chunks:
        connection.query(
            f"INSERT INTO {DATABASE}.load_chunk VALUES (%s, %s, %s, %s, %s, %s, %s, 0, 0)",
            (
                task_of(owner.task),
                *key,
                chunk.number,
                border_to_json(chunk.after),
                border_to_json(chunk.through),
                FOUND,
            ),
        )
    connection.commit()
    fault_point(AFTER_FOUND)


def commit_rows(
    connection: MySqlSession,
    owner: Owner,
    key: TableKey,
    done: Amount,
    reach: Reach,
    *,
    number: int | None,
) -> bool:
    """Commit the rows of the open target transaction with their state. It has checked the fence.

    ``number``: of their chunk; None for a table that is read in one snapshot. False, and the rows are rolled back, if
    the table waits for another load now. Fenced MR-5020 if the chunk is copied.
    """
    task = task_of(owner.task)
    rows = connection.query(
        f"SELECT end_gtid FROM {DATABASE}.load_table WHERE {_OF_TABLE} AND state = %s FOR UPDATE",
        (task, *key, COPIES),
    )
    if not rows:
        connection.rollback()
        return False
    if number is not None:
        marked = connection.with_arguments(
            f"UPDATE {DATABASE}.load_chunk SET state = %s, rows_done = %s, bytes_done = %s"
            f" WHERE {_OF_TABLE} AND number = %s AND state = %s",
            (COPIED, done.rows, done.bytes, task, *key, number, FOUND),
        )
        if connection.run(marked) != 1:
            connection.rollback()
            what = f"{'.'.join(key)}: chunk {number} is copied by another run"
            raise Fenced("MR-5020", what, task=task)
    end = united([str(rows[0][0]), reach.end], flavour_of(reach.end))
    connection.query(
        f"UPDATE {DATABASE}.load_table SET rows_done = rows_done + %s, bytes_done = bytes_done + %s,"
        f" end_gtid = %s, exact_gtid = %s WHERE {_OF_TABLE}",
        (done.rows, done.bytes, end, reach.exact, task, *key),
    )
    fault_point(BEFORE_CHUNK_COMMIT)
    connection.commit()
    fault_point(AFTER_CHUNK_COMMIT)
    return True


def finish_tables(connection: MySqlSession, owner: Owner, keys: Sequence[TableKey]) -> None:
    """All rows of these tables are copied. Those of one snapshot are finished together."""
    check_fence(connection, owner)
    for key in keys:
        _forget_chunks(connection, owner, key)
        connection.query(
            f"UPDATE {DATABASE}.load_table SET state = %s WHERE {_OF_TABLE} AND state = %s",
            (COPIED, task_of(owner.task), *key, COPIES),
        )
    connection.commit()
    fault_point(AFTER_TABLE)


def set_waiting(
    connection: MySqlSession, task: str, tables: Collection[TableKey], *, detail: str
) -> None:
    """Make tables wait for the next load, whatever their state. Does not commit. ``detail``: why, for the operator."""
    for database, table in sorted(tables):
        connection.query(
            f"INSERT INTO {DATABASE}.load_table VALUES"
            " (%s, %s, %s, %s, %s, '', '', '', '', '', 0, 0, 0, %s)"
            " ON DUPLICATE KEY UPDATE state = VALUES(state), detail = VALUES(detail)",
            (task, database, table, FIRST, WAITS, detail[:DETAIL_MAX]),
        )


def forget_tables(connection: MySqlSession, task: str, tables: Collection[TableKey]) -> None:
    """Let tables leave their loads, whatever their state. Does not commit."""
    for key in sorted(tables):
        for state in ("load_chunk", "load_table"):
            connection.query(f"DELETE FROM {DATABASE}.{state} WHERE {_OF_TABLE}", (task, *key))


def let_wait(connection: MySqlSession, owner: Owner, key: TableKey, detail: str) -> None:
    """The table is to be loaded by a later batch, again if it has a row; its rows so far stay on the target."""
    check_fence(connection, owner)
    _forget_chunks(connection, owner, key)
    set_waiting(connection, task_of(owner.task), [key], detail=detail)
    connection.commit()


def reset(connection: MySqlSession, owner: Owner, table: LoadTable) -> None:
    """Store the table as it is before its first row, whose rows are deleted on the target already."""
    check_fence(connection, owner)
    _forget_chunks(connection, owner, table.key)
    connection.query(
        f"UPDATE {DATABASE}.load_table SET begin_gtid = %s, end_gtid = '', exact_gtid = '', chunk_key = %s,"
        f" structure = %s, rows_expected = %s, rows_done = 0, bytes_done = 0, detail = %s"
        f" WHERE {_OF_TABLE} AND state = %s",
        (
            table.reach.begin,
            table.chunk_key,
            table.structure,
            table.expected,
            table.detail,
            *(task_of(owner.task), *table.key, COPIES),
        ),
    )
    connection.commit()
    fault_point(AFTER_RESET)


def store_stream(connection: MySqlSession, owner: Owner, stream: LoadStream, batch: int) -> None:
    """Begin a later load: its range, and no table is prepared for it."""
    check_fence(connection, owner)
    put_stream(connection, owner.task, stream)
    connection.query(
        f"UPDATE {DATABASE}.load_table SET begin_gtid = '', structure = ''"
        " WHERE task = %s AND batch = %s AND state = %s",
        (task_of(owner.task), batch, COPIES),
    )
    connection.commit()
    fault_point(AFTER_PLAN)


def _forget_chunks(connection: MySqlSession, owner: Owner, key: TableKey) -> None:
    connection.query(
        f"DELETE FROM {DATABASE}.load_chunk WHERE {_OF_TABLE}", (task_of(owner.task), *key)
    )


def begin_stream(connection: MySqlSession, owner: Owner, mark: Mark, end: str) -> None:
    """End the first load and insert the task's first mark, in one target transaction."""
    fault_point(BEFORE_STREAM)
    check_fence(connection, owner)
    connection.query(
        f"UPDATE {DATABASE}.load_stream SET end_gtid = %s WHERE task = %s", (end, owner.task)
    )
    connection.query(
        f"UPDATE {DATABASE}.load_table SET state = %s WHERE task = %s AND batch = %s AND state = %s",
        (FOLLOWS, owner.task, FIRST, COPIED),
    )
    insert_mark(connection, owner.task, mark)
    connection.commit()
    fault_point(AFTER_STREAM)


def end_stream(connection: MySqlSession, owner: Owner) -> None:
    """Forget the first load, once the task's mark is after its range. Does not commit."""
    connection.query(f"DELETE FROM {DATABASE}.load_stream WHERE task = %s", (owner.task,))
    connection.query(
        f"DELETE FROM {DATABASE}.load_table WHERE task = %s AND batch = %s AND state = %s",
        (owner.task, FIRST, FOLLOWS),
    )


def united(texts: Iterable[str], flavour: Flavour) -> str:
    """The union of GTID sets of one flavour; "" is empty."""
    whole = parse_gtid_set(flavour, "")
    for text in texts:
        whole = unite(whole, parse_gtid_set(flavour, text))
    return str(whole)


def flavour_of(gtid_set: str) -> Flavour:
    """The flavour of a GTID set's text."""
    return Flavour.MYSQL if ":" in gtid_set else Flavour.MARIADB


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value
