"""Reads and writes what streams know of the loads of a task (``consumer.target.loads``).

Each writer checks the fence of a stream of the task in the same target transaction, and changes a table's state only
from the one that it has read. So of two writers one comes first, and the other sees it:

    waits → copies       the driver, between two turns of main
    copies → copied      the load, with the last chunk
    copied → follows     the driver, when the side stream begins; for a first load, when main begins
    follows → no row     the driver, when the side stream joins main; of a first load, when its range is over
    any → waits          a stream that sets a DDL statement aside, or a table that the target does not have; a load
                         whose tables were changed meanwhile; an operator (``millrace task load``)

Nothing here commits.
"""

from collections.abc import Collection, Mapping

from millrace.consumer.target.load_range import StreamTables, streams_of, tables_of_stream
from millrace.consumer.target.loads import end_stream, read_stream, set_waiting, stream_tables
from millrace.consumer.target.progress import DATABASE, Mark, Owner, check_fence
from millrace.drivers.mysql.catalog import Changed, Inventory, TableKey, read_again
from millrace.drivers.mysql.connection import MySqlSession


def stream_with(connection: MySqlSession, table: str, task: str, seq: int) -> str:
    """The stream of a task that has a row of this seq in a table of Millrace; main if none has."""
    found = connection.query(
        f"SELECT task FROM {DATABASE}.{table} WHERE task IN %s AND seq = %s ORDER BY task LIMIT 1",
        (streams_of(task), seq),
    )
    return str(found[0][0]) if found else task


def is_partial(connection: MySqlSession, stream: str) -> bool:
    """Whether tables of the task are loaded or wait, or the stream has a range."""
    tables = stream_tables(connection, stream)
    return bool(tables or read_stream(connection, stream))


def tables_in_loads(connection: MySqlSession, task: str) -> frozenset[TableKey]:
    """The tables that wait for a load, are copied, or follow in a side stream: main's progress is not about them."""
    tables = stream_tables(connection, task)
    return tables_of_stream(task, tables, None).elsewhere


def read_stream_tables(connection: MySqlSession, stream: str) -> StreamTables:
    """The tables of a stream, and its range."""
    tables = stream_tables(connection, stream)
    return tables_of_stream(stream, tables, read_stream(connection, stream))


def current_tables(connection: MySqlSession, owner: Owner, mark: Mark) -> StreamTables:
    """The tables of a stream at the begin of a turn. A range that the mark has passed is deleted."""
    found = read_stream_tables(connection, owner.task)
    if found.range is None or not found.range.is_over(mark):
        return found
    check_fence(connection, owner)
    end_stream(connection, owner)
    return read_stream_tables(connection, owner.task)


def set_missing(connection: MySqlSession, task: str, missing: Collection[TableKey]) -> None:
    """Set tables aside of which the topic has rows and which the target does not have."""
    set_waiting(connection, task, missing, detail="the topic has rows of it, the target no table")


def read_missing(
    connection: MySqlSession, known: Inventory, missing: Collection[TableKey]
) -> Inventory | None:
    """The inventory with those of these tables that the target has by now; None if it has none of them."""
    found = read_again(connection, known, Changed(frozenset(missing)))
    return found if any(table in found.tables for table in missing) else None


def set_unfit(connection: MySqlSession, task: str, unfit: Mapping[TableKey, str]) -> None:
    """Set tables aside whose rows do not fit their copies, each with the reason."""
    for table, why in unfit.items():
        set_waiting(connection, task, [table], detail=f"a row does not fit the copy: {why}")
