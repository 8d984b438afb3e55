"""Compiles the kernel in advance: every function once, with the types that executors use.

Otherwise all executor processes compile it at their first rows, at the same time. ``$MILLRACE_HOME`` caches the machine
code, so this takes seconds once per installation and milliseconds later.

    python -m millrace.consumer.turn.warm_up
"""

import numpy as np

from millrace.consumer.copy.columns import CopyColumn
from millrace.consumer.copy.form import load_form
from millrace.consumer.kernel.groups import bind_groups, hold_keys, pack_lanes
from millrace.consumer.kernel.text_rows import make_state, put_text_rows
from millrace.consumer.records.numbers import RecordNumbers
from millrace.consumer.records.row_schemas import RowSchemas
from millrace.consumer.records.rows import Values, walk_values
from millrace.consumer.tables.causality_keys import find_keys
from millrace.consumer.tables.filter import Route
from millrace.consumer.tables.merge_rules import net_changes
from millrace.consumer.tables.table_plans import Catalogue, TablePlans
from millrace.drivers.mysql.catalog import CatalogColumn, CatalogTable, Inventory, UniqueKey
from millrace.schemas.gtid import Flavour
from millrace.schemas.record.avro_codec import encode
from millrace.schemas.record.avro_schema import envelope_schema
from millrace.schemas.record.control import EventPlace, Origin, RecordSource, RecordTransaction
from millrace.schemas.record.control_fields import source_to_plain, transaction_to_plain
from millrace.schemas.record.framing import frame
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TypeCode
from millrace.schemas.view.view import Mask, MaskKind, TableRule, View

_TABLE = TableSchema(
    "warm",
    "warm",
    (
        Column("id", ColumnType(TypeCode.LONG), nullable=False),
        Column("weight", ColumnType(TypeCode.DOUBLE, 8), nullable=True),
    ),
    (0,),
    (0,),
)
_SCHEMA_ID = 1
SCHEMAS = RowSchemas({_SCHEMA_ID: envelope_schema("warm", _TABLE).text})


def warm() -> None:
    """Run an update of an invented table through every compiled function, and copy a result without rows."""
    _copy_nothing()
    columns = {
        name: CatalogColumn(name, type_, type_, "", "", False, False) for name, type_ in _COLUMNS
    }
    table = CatalogTable("warm", "warm", columns, (UniqueKey("PRIMARY", ("id",), True),))
    plans = TablePlans(Catalogue("warm", SCHEMAS, Inventory(tables={("warm", "warm"): table})))
    rows = walk_values(warm_values(), plans.programs)
    numbers = RecordNumbers(np.arange(len(rows)))
    entries = find_keys(rows, plans.key_programs([0]), numbers)
    entries.levels(len(numbers))
    groups = entries.groups(len(numbers))
    lanes = pack_lanes(groups, np.ones(len(numbers), np.int64), 1)
    keys = (entries.owners, entries.hashes, entries.modes)
    held, slots, bound = np.zeros(8, np.uint64), np.zeros((8, 3), np.int64), np.full(1, -1)
    bind_groups(*keys, groups, held, slots, 0, bound)
    hold_keys(*keys, lanes, 1, held, slots, 0)
    net_changes(rows, numbers, plans.merge_rules([0]))
    rows.inexact(numbers, (0,), width=len(_COLUMNS), marks=0)
    pieces = plans.table_plan(0).insert
    firsts = rows.firsts(numbers)
    rows.text_of(firsts, pieces.shape, pieces.around)
    rows.lines_of(firsts, pieces.shape)
    rows.filled(firsts, plans.template(0, "update"))
    _see_view(plans)


def _see_view(plans: TablePlans) -> None:
    """The same row through a view with a condition, a mask and an added column."""
    rule = TableRule(
        "*.*",
        where="id > 0",
        add=(("added", 1),),
        masks=(("weight", Mask(MaskKind.REDACT)),),
    )
    viewed = TablePlans(Catalogue("", SCHEMAS, plans.inventory, Route(View((rule,)))))
    rows = walk_values(warm_values(), viewed.programs)
    rows, numbers = viewed.through_view(rows, RecordNumbers(np.arange(len(rows))))
    rows.lines_of(rows.firsts(numbers), plans.table_plan(0).insert.shape)


def warm_values() -> Values:
    """An update of the invented table, whose schema is in ``SCHEMAS``."""
    record = _record()
    return Values(np.frombuffer(record, np.uint8), np.array([0, len(record)], np.int64))


def _copy_nothing() -> None:
    form = load_form((CopyColumn("id", "id"),))
    out, data = np.empty(form.margin, np.uint8), np.zeros(1, np.uint8)
    texts = (form.escapes, form.texts, form.sizes, form.flags, form.margin)
    put_text_rows(make_state(0, 1), data, 0, 0, out, *texts)


_COLUMNS = (("id", "int"), ("weight", "double"))


def _record() -> bytes:
    row = {"id": 1, "weight": 0.5}
    place = EventPlace(0, 1, "0-1-1", "binlog.000001", 4, 0)
    source = RecordSource(Origin(Flavour.MARIADB, "warm", "warm"), "warm", "warm", place, 0, 1)
    plain = {
        "before": row,
        "after": row,
        "source": source_to_plain(source),
        "op": "u",
        "ts_ms": 0,
        "transaction": transaction_to_plain(RecordTransaction("0-1-1", 1, True)),
    }
    return frame(_SCHEMA_ID, encode(envelope_schema("warm", _TABLE).text, plain))


if __name__ == "__main__":
    warm()
