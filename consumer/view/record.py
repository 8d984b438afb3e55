"""A record as the view of a task has it, with its schema: a conflict is stored so. Apart: it writes Avro.

A stored record outlives the view under which it met its conflict, so it is replayed without a view. It has nothing that
the view leaves out. It is written from the cells, which have the view's operation and values.
"""

from collections.abc import Iterator

from millrace.consumer.kernel import walk
from millrace.consumer.records.row_schemas import KINDS, is_decimal
from millrace.consumer.records.rows import Rows
from millrace.consumer.view.layout import visible_table, zigzag
from millrace.schemas.record.avro_codec import decode, encode
from millrace.schemas.record.avro_schema import envelope_schema
from millrace.schemas.record.row_layout import RowLayout
from millrace.schemas.table.structure import Column

_FRAME_BYTES = 5
_WITH_LENGTH = (walk.DECIMAL, walk.BYTES, walk.STRING)


def view_record(
    rows: Rows, number: int, *, layout: RowLayout, schema_text: str
) -> tuple[bytes, str]:
    """The value of one row record under ``layout``, and the text of its schema.

    ``schema_text``: of the record as the topic has it. The frame keeps the schema's ID, which names that one.
    """
    table = visible_table(layout)
    schema = envelope_schema(layout.set_name, table).text
    value = rows.values.value(number)
    raw = decode(schema_text, value[_FRAME_BYTES:])
    op = int(rows.records[number, walk.OP])
    source = raw["source"]
    assert isinstance(source, dict)
    around = {
        **raw,
        "before": None,
        "after": None,
        "source": {**source, "db": table.database, "table": table.table},
        "op": raw["op"] if raw["op"] == "r" and op == walk.OP_CREATE else chr(op),
    }
    first = int(rows.records[number, walk.FIRST_CELL])
    width = int(rows.programs.widths[rows.records[number, walk.SLOT]])
    before = b"\x00" if op == walk.OP_CREATE else _image(rows, first, layout)
    after = b"\x00" if op == walk.OP_DELETE else _image(rows, first + width, layout)
    return value[:_FRAME_BYTES] + before + after + encode(schema, around)[2:], schema


def _image(rows: Rows, first: int, layout: RowLayout) -> bytes:
    return b"\x02" + b"".join(_columns(rows, first, layout))


def _columns(rows: Rows, first: int, layout: RowLayout) -> Iterator[bytes]:
    for at, (column, branches) in enumerate(
        zip(layout.table.columns, layout.branches, strict=True)
    ):
        if at in layout.hidden:
            continue
        kind, start, end = (int(part) for part in rows.cells[first + at, :3])
        if len(branches) > 1:
            yield zigzag(_kinds(column, branches).index(kind))
        content = rows.values.payload[start:end].tobytes() if kind != walk.NULL else b""
        if kind in _WITH_LENGTH:
            yield zigzag(len(content))
        yield content


def _kinds(column: Column, branches: tuple[str, ...]) -> list[int]:
    kinds = [KINDS[branch] for branch in branches]
    if is_decimal(column):
        return [walk.DECIMAL if kind == walk.BYTES else kind for kind in kinds]
    return kinds
