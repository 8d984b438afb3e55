"""The rows of ``millrace.conflict`` on the target: changes that did not fit the target's row.

    decision `overwrite`, `skip`   the policy resolved the conflict; stored in the target transaction of the rows
    decision `aside`               the target refused the change, or an earlier one of its keys is kept. A replay
                                   applies it, with all that depend on it (``consumer.target.aside``)
    decision `stop`                the task is blocked at this change, which is not applied. Stored in a transaction of
                                   its own under the fence, after the rows were rolled back. Each start of the task
                                   deletes it, because the change is then tried again.

``record`` is the Kafka value. Its schema is in ``millrace.record_schema``. It is in ``schema_text`` if the task is
blocked, because schemas are stored when the mark moves, or if the topic later gives the schema's ID another meaning
(``progress.save_schemas``). ``target_rows`` has the rows that were in the way, as a JSON array; NULL if they could not
be read. Times are UTC.

Not done here: finding conflicts (``consumer.write.row_writer``), and deciding about them
(``consumer.write.resolve_conflict``).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from millrace.consumer.target.aside import read_parts
from millrace.consumer.target.progress import DATABASE
from millrace.drivers.mysql.connection import MySqlSession, Row
from millrace.errors import Fatal
from millrace.schemas.view.view import shown_name

STOP = "stop"
SKIP = "skip"
ASIDE = "aside"


@dataclass(frozen=True, slots=True)
class Conflict:
    """One change of a source row; ``target_rows`` is JSON text, "" if unknown. ``table``: of the source.

    ``schema_text``: of the record, if it may not be in ``record_schema`` yet. ``target_table``: the name that the
    task's view gives the table, if the view changes it; ``record`` is then as the view has it.
    """

    @property
    def shown_table(self) -> str:
        """The source's name, and the target's if that is another one."""
        return shown_name(self.table, self.target_table or self.table)

    seq: int
    gtid: str
    table: str
    op: str
    why: str
    record: bytes
    target_rows: str
    schema_text: str = ""
    target_table: str = ""


@dataclass(frozen=True, slots=True)
class StoredConflict:
    """A row of ``millrace.conflict``. ``at``: as the server prints it; "" if stored by an earlier version.

    ``stream``: the task or its side stream (``consumer.target.load_range``), which has stored it.
    """

    conflict: Conflict
    decision: str
    at: str
    stream: str


def store_conflict(
    connection: MySqlSession, task: str, conflict: Conflict, *, decision: str, bytes_max: int
) -> None:
    """Insert or replace the row of this seq. Does not commit.

    A statement of ``bytes_max`` or more is tried without the target's rows, then refused with Fatal MR-5014.
    """
    for target_rows in dict.fromkeys((conflict.target_rows, "")):
        sql = connection.with_arguments(
            f"REPLACE INTO {DATABASE}.conflict"
            " (task, seq, gtid, table_name, op, decision, detail, record, target_rows,"
            " schema_text, target_table, at)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, _binary %s, %s, %s, %s, UTC_TIMESTAMP(3))",
            (
                *(task, conflict.seq, conflict.gtid, conflict.table[:190], conflict.op, decision),
                *(conflict.why, conflict.record, target_rows or None, conflict.schema_text or None),
                conflict.target_table[:190] or None,
            ),
        )
        if len(sql) < bytes_max:
            connection.run(sql)
            return
    raise Fatal(
        "MR-5014",
        f"the conflict of seq {conflict.seq} needs {len(sql) + 1} bytes, max_allowed_packet is {bytes_max}",
        bytes=len(sql) + 1,
    )


def forget_blocking(connection: MySqlSession, task: str) -> None:
    """Delete the changes that blocked earlier runs. Does not commit."""
    connection.query(
        f"DELETE FROM {DATABASE}.conflict WHERE task = %s AND decision = '{STOP}'", (task,)
    )


_COLUMNS = "task, seq, gtid, table_name, op, detail, decision, at, target_table"


def count_conflicts(connection: MySqlSession, streams: Sequence[str]) -> int:
    """The number of stored conflicts of these streams."""
    ((count,),) = connection.query(
        f"SELECT COUNT(*) FROM {DATABASE}.conflict WHERE task IN %s", (streams,)
    )
    assert isinstance(count, int)
    return count


def read_tables(connection: MySqlSession, task: str, *, decision: str) -> list[str]:
    """The tables with a conflict of this decision, by name."""
    rows = connection.query(
        f"SELECT DISTINCT table_name FROM {DATABASE}.conflict WHERE task = %s AND decision = %s"
        " ORDER BY table_name",
        (task, decision),
    )
    return [str(name) for (name,) in rows]


def list_conflicts(
    connection: MySqlSession, streams: Sequence[str], *, first_seq: int, limit: int
) -> list[StoredConflict]:
    """Conflicts from ``first_seq`` on, in the order of seq, without records and target rows."""
    rows = connection.query(
        f"SELECT {_COLUMNS} FROM {DATABASE}.conflict WHERE task IN %s AND seq >= %s ORDER BY seq LIMIT %s",
        (streams, first_seq, limit),
    )
    return [_stored((*row, b"", None)) for row in rows]


def read_conflict(connection: MySqlSession, task: str, seq: int) -> StoredConflict:
    """One conflict with its record; Fatal MR-5061 if it does not exist."""
    rows = connection.query(
        f"SELECT {_COLUMNS}, record, target_rows FROM {DATABASE}.conflict WHERE task = %s AND seq = %s",
        (task, seq),
    )
    if not rows:
        raise no_conflict(task, seq)
    *others, record, target_rows = rows[0]
    return _stored((*others, record or read_parts(connection, task, seq), target_rows))


def no_conflict(task: str, seq: int) -> Fatal:
    """The error for a seq without a stored conflict."""
    return Fatal("MR-5061", f"{task} has no conflict with seq {seq}", task=task, seq=seq)


def _stored(row: Row) -> StoredConflict:
    stream, seq, gtid, table, op, why, decision, at, target_table, record, target_rows = row
    assert isinstance(seq, int)
    assert isinstance(record, bytes)
    found = Conflict(
        *(seq, str(gtid), str(table), str(op), str(why), record, str(target_rows or "")),
        target_table=str(target_table or ""),
    )
    return StoredConflict(found, str(decision), str(at or ""), str(stream))


def schema_of(connection: MySqlSession, task: str, conflict: Conflict) -> str:
    """The schema text of a conflict's record; Fatal MR-5033 if the target does not have it (yet)."""
    schema_id = int.from_bytes(conflict.record[1:5], "big")
    rows = connection.query(
        f"SELECT COALESCE(c.schema_text, s.schema_text) FROM {DATABASE}.conflict c"
        f" LEFT JOIN {DATABASE}.record_schema s ON s.task = c.task AND s.id = %s"
        " WHERE c.task = %s AND c.seq = %s",
        (schema_id, task, conflict.seq),
    )
    if not rows or rows[0][0] is None:
        raise Fatal(
            "MR-5033",
            f"the target does not have the schema of seq {conflict.seq} yet",
            fix="The task stores it when it has applied the batch: repeat the command later.",
            schema_id=schema_id,
        )
    return str(rows[0][0])
