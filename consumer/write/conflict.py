"""Stores a conflict: the record, the reason, and the target's rows that were in its way.

``rows_in_the_way`` looks up, by each unique key of the target whose columns the record has:

    INSERT    the rows with the after image's keys: REPLACE would remove them
    UPDATE    the row with the before image's identity, and those with the after image's keys
    DELETE    the row with the before image's identity: a foreign key protects it

Under a view, the record is stored as the view has it (``consumer.view.record``). It reads inside the failed target
transaction, so it also finds rows that this transaction wrote. The cost is one statement for each unique key. Values
are cut after ``VALUE_LENGTH_MAX``, and at most ``ROWS_MAX`` rows are kept.

``store_blocking`` is for policy `stop`, after the caller has rolled back: one target transaction, which checks the
fence. If the process is killed before its commit, the conflict is not stored; the resumed task meets and stores it.
"""

import base64
import json
from collections.abc import Iterable

import numpy as np

from millrace.consumer.kernel.walk import OP, OP_CREATE, OP_DELETE, OP_UPDATE, SCHEMA_ID, SEQ, SLOT
from millrace.consumer.records.rows import Rows
from millrace.consumer.tables.row_statements import rows_template
from millrace.consumer.tables.table_plan import (
    AFTER,
    BEFORE,
    TablePlan,
    record_indexes,
    target_column,
)
from millrace.consumer.tables.table_plans import TablePlans
from millrace.consumer.target.conflicts import STOP, Conflict, store_conflict
from millrace.consumer.target.progress import Owner, check_fence
from millrace.consumer.view.record import view_record
from millrace.drivers.mysql.catalog import CatalogColumn
from millrace.drivers.mysql.connection import MySqlSession, Row
from millrace.drivers.mysql.errors import FOREIGN_KEY
from millrace.errors import Fatal, MillraceError
from millrace.log import get_logger
from millrace.schemas.sql.quoting import quoted

ROWS_MAX = 8  # a row of the target for each unique key
VALUE_LENGTH_MAX = 1000  # characters or bytes of a value; a row's key and short columns stay whole

_log = get_logger("apply.conflict")
_LONG = {"char", "varchar", "binary", "varbinary", "json"}
_LONG |= {f"{size}{kind}" for size in ("tiny", "", "medium", "long") for kind in ("text", "blob")}
_HEX = {"geometry", "point", "linestring", "polygon", "multipoint", "multilinestring"}
_HEX |= {"multipolygon", "geomcollection", "geometrycollection", "vector"}

_Key = tuple[tuple[int, CatalogColumn], ...]


def make_conflict(
    connection: MySqlSession,
    plans: TablePlans,
    rows: Rows,
    number: int,
    why: str,
    *,
    looks: bool = True,
) -> Conflict:
    """The conflict of one record, with the target's rows as they are now; without them if it does not look."""
    slot = int(rows.records[number, SLOT])
    table_plan, source = plans.table_plan(slot), plans.programs.layouts[slot].table
    record, schema_text = (
        rows.values.value(number),
        plans.schemas.texts[int(rows.records[number, SCHEMA_ID])],
    )
    target_table = ""
    if table_plan.is_viewed:
        target_table = table_plan.layout.table.full_name
        record, schema_text = view_record(
            rows, number, layout=table_plan.layout, schema_text=schema_text
        )
    return Conflict(
        int(rows.records[number, SEQ]),
        rows.gtid(number),
        source.full_name,
        chr(int(rows.records[number, OP])),
        why,
        record,
        rows_in_the_way(connection, table_plan, rows, number) if looks else "",
        schema_text,
        target_table,
    )


def conflict_kind(op: int, refused: Fatal | None) -> str:
    """One of ``CONFLICT_KINDS``. ``refused``: the server's error; None if a statement found no row."""
    if is_foreign_key(refused):
        return "foreign-key"
    if op == OP_UPDATE:
        return "update-exists" if refused is not None and refused.errno else "update-missing"
    return "insert-exists" if op == OP_CREATE else "delete-missing"


def is_foreign_key(refused: Fatal | None) -> bool:
    """Whether a foreign key refused the row."""
    return refused is not None and refused.errno in FOREIGN_KEY


def store_blocking(
    connection: MySqlSession, owner: Owner, conflict: Conflict, *, bytes_max: int
) -> None:
    """Store the change that blocks the task. Retryable and Fenced as in any target transaction; logs a refusal."""
    try:
        check_fence(connection, owner)
        store_conflict(connection, owner.task, conflict, decision=STOP, bytes_max=bytes_max)
        connection.commit()
    except Fatal as exc:  # the conflict itself is the reason to stop
        _log.warning("the conflict is not stored", task=owner.task, seq=conflict.seq, why=str(exc))
        connection.rollback()
    except MillraceError:
        connection.close()
        raise


def rows_in_the_way(
    connection: MySqlSession, table_plan: TablePlan, rows: Rows, number: int
) -> str:
    """A JSON array of rows, each an object by column name; "" if the target refuses a look-up."""
    columns = list(table_plan.target.columns.values())
    shown = b", ".join(map(_expression, columns))
    op, found = int(rows.records[number, OP]), dict[Row, None]()
    try:
        for image, key in _look_ups(table_plan, op):
            template = rows_template(table_plan, shown, key, image=image)
            found |= dict.fromkeys(
                connection.query(rows.filled(rows.firsts(np.array([number])), template))
            )
    except Fatal as exc:
        _log.warning("the target's rows can't be read", table=table_plan.target.table, why=str(exc))
        return ""
    names = [column.name for column in columns]
    plain = [dict(zip(names, map(_plain, row), strict=True)) for row in list(found)[:ROWS_MAX]]
    return json.dumps(plain, ensure_ascii=False)


def _look_ups(table_plan: TablePlan, op: int) -> Iterable[tuple[int, _Key]]:
    """(image, key) for each look-up."""
    if op != OP_CREATE and table_plan.identity:
        yield BEFORE, table_plan.named
    if op == OP_DELETE:
        return
    for unique in table_plan.target.unique_keys[:ROWS_MAX]:
        indexes = record_indexes(table_plan.layout, unique.columns) if unique.is_whole else None
        if indexes and not unique.has_period:
            names = (target_column(table_plan.target, name) for name in unique.columns)
            key = tuple((i, column) for i, column in zip(indexes, names, strict=True) if column)
            yield AFTER, key


def _expression(column: CatalogColumn) -> bytes:
    name = quoted(column.name)
    if column.base_type in _HEX:
        return b"LEFT(HEX(%s), %d)" % (name, VALUE_LENGTH_MAX + 1)
    if column.base_type in _LONG:
        return b"LEFT(%s, %d)" % (name, VALUE_LENGTH_MAX + 1)
    return name


def _plain(value: object) -> object:
    """A value for JSON; one that was cut ends in an ellipsis."""
    if isinstance(value, str):
        return value if len(value) <= VALUE_LENGTH_MAX else value[:VALUE_LENGTH_MAX] + "…"
    if isinstance(value, bytes):
        text = base64.b64encode(value[:VALUE_LENGTH_MAX]).decode()
        return {"base64": text} if len(value) <= VALUE_LENGTH_MAX else {"base64": text + "…"}
    return value
