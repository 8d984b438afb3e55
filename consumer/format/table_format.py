"""Turns the changes of one table into records of a format: one pass of a kernel over all changes of a batch.

``make_format`` compiles options, view and structure into arrays, once for each table and schema. ``encode`` is a pure
function: equal changes give equal bytes, whatever the batch.

Errors, all Fatal: MR-6530 (a text is not valid in its character set), MR-6531 (a date that no calendar has), MR-6532 (a
DECIMAL with more than 38 digits), MR-6533 (the format needs a primary key). The options choose the first three.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from consumer.format import connect_schema
from consumer.format.columns import WIDE_DIGITS, ValueForm, fallback_of, form_of, text_form
from consumer.format.connect_schema import ordered, schema_text
from consumer.format.encoded import Encoded
from consumer.format.undecodable import Undecoded, decoded, undecoded
from consumer.kernel import json_records as kernel
from consumer.kernel import json_values
from consumer.records.numbers import Ints
from consumer.records.rows import Rows
from consumer.view.changes import RECORD, Changes
from millrace.errors import Fatal
from schemas.record.row_layout import RowLayout
from schemas.view.format_options import FormatName, FormatOptions, WideDecimal
from schemas.view.table_view import TableView, ViewColumn
from schemas.view.view import MaskKind

Bytes = npt.NDArray[np.uint8]

ALL_PARTITIONS: Bytes = np.frombuffer(b"", np.uint8)
RECORDS_OF_A_CHANGE_MAX = 3  # a change of the key: delete, tombstone, create


@dataclass(frozen=True, slots=True)
class FormatNames:
    """``topic`` of the table, which names its Connect schemas; ``prefix`` is ``source.name`` in the records."""

    topic: str
    prefix: str
    connector: str = "mysql"


@dataclass(frozen=True, slots=True)
class _Arrays:
    """The input of ``kernel.json_records`` for one table."""

    columns: Ints
    keys: Ints
    fixed: Bytes
    pieces: Ints
    settings: Ints
    fixed_bytes: int  # in a key and a value


@dataclass(frozen=True, slots=True)
class TableFormat:
    """One table in a format. ``width``: the columns of an image in the set topic."""

    table: str
    width: int
    arrays: _Arrays
    texts: tuple[Undecoded, ...]

    def encode(
        self,
        rows: Rows,
        changes: Changes,
        *,
        orders: Ints | None = None,
        owned: Bytes = ALL_PARTITIONS,
    ) -> Encoded:
        """The records of all changes. ``orders``: of ``transactions``; None without transaction metadata.

        ``owned``: for each partition that a key may choose, 1 if its records are wanted. Other records may be missing.
        """
        changes = decoded(changes, rows, self.texts)
        arrays = self.arrays
        out = np.empty(self._size(rows, changes), np.uint8)
        lines: Ints = np.empty(
            (RECORDS_OF_A_CHANGE_MAX * len(changes), kernel.LINE_WIDTH), np.int64
        )
        length, count, status = kernel.encode(
            out,
            changes.payload,
            changes.cells,
            changes.lines,
            rows.values.payload,
            rows.values.offsets,
            rows.records,
            rows.cells,
            self.width,
            arrays.columns,
            arrays.keys,
            arrays.fixed,
            arrays.pieces,
            arrays.settings,
            np.zeros((len(changes), 2), np.int64) if orders is None else orders,
            owned,
            lines,
        )
        if status != json_values.OK:
            self._stop(rows, changes, int(count), int(status))
        return Encoded(out[:length], lines[:count])

    def event_counts(self, rows: Rows, changes: Changes) -> Ints:
        """How many events of Debezium each change is."""
        changes = decoded(changes, rows, self.texts)
        counts: Ints = np.empty(len(changes), np.int64)
        kernel.count_events(
            np.empty(self._size(rows, changes), np.uint8),
            changes.payload,
            changes.cells,
            changes.lines,
            self.arrays.keys,
            self.arrays.fixed,
            self.arrays.pieces,
            counts,
        )
        return counts

    def _size(self, rows: Rows, changes: Changes) -> int:
        """An upper limit of the bytes that the records need."""
        arrays = self.arrays
        args = (changes.cells, changes.lines, self.width, len(arrays.keys))
        return int(kernel.measure(*args, arrays.fixed_bytes, rows.values.offsets)) + 1

    def _stop(self, rows: Rows, changes: Changes, number: int, status: int) -> None:
        gtid = rows.gtid(int(changes.lines[number, RECORD]))
        where = f"a row of {self.table} in the source transaction {gtid}"
        if status == json_values.NO_DATE:
            raise Fatal("MR-6531", f"{where} has a date that no calendar has")
        raise Fatal("MR-6530", f"{where} has a text that is not valid in its character set")


def make_format(
    options: FormatOptions, view: TableView, layout: RowLayout, names: FormatNames
) -> TableFormat:
    """The records of a table in a view; Fatal MR-6532, MR-6533."""
    _check(options, view, layout)
    columns = _columns(options, view, layout)
    key = [columns[at] for at in view.key]
    fixed = _Fixed()
    lead = '{"schema":' + schema_text(_key_schema(key, names)) + ',"payload":{'
    keys, key_tail = fixed.program(key, lead if options.schemas else "{")
    row, row_tail = fixed.program(columns, "{")
    pieces = {
        kernel.KEY_TAIL: key_tail + "}" if options.schemas else key_tail,
        kernel.ROW_TAIL: row_tail,
    }
    if options.name is FormatName.DEBEZIUM_JSON:
        schema = schema_text(_value_schema(columns, names)) if options.schemas else ""
        pieces |= _envelope(view, names, schema)
    places: Ints = np.zeros((kernel.PIECES_MAX, 2), np.int64)
    for piece, text in pieces.items():
        places[piece] = fixed.add(text)
    settings: Ints = np.zeros(kernel.SETTINGS, np.int64)
    settings[kernel.IS_ENVELOPE] = options.name is FormatName.DEBEZIUM_JSON
    settings[kernel.HAS_TOMBSTONES] = options.tombstones
    # the names and constants of an image are in both
    names_bytes = [
        2 * int((lines[:, json_values.TEXT_END] - lines[:, json_values.TEXT]).sum())
        for lines in (row, keys)
    ]
    fixed_bytes = (
        sum(names_bytes)
        + sum(len(text.encode()) for text in pieces.values())
        + len(row_tail.encode())
    )
    arrays = _Arrays(row, keys, fixed.array(), places, settings, fixed_bytes)
    texts = undecoded(options, view, layout)
    return TableFormat(layout.table.full_name, len(layout.table.columns), arrays, texts)


def _check(options: FormatOptions, view: TableView, layout: RowLayout) -> None:
    table = layout.table
    if options.name is FormatName.JSON and not view.key:
        raise Fatal("MR-6533", f"{table.full_name} has no primary key; {options.name} needs one")
    for column in view.columns:
        type_ = table.columns[column.source].type if column.source >= 0 else None
        is_masked = column.mask is not None and column.mask.kind is MaskKind.HMAC
        if type_ is None or is_masked or type_.precision <= WIDE_DIGITS:
            continue
        if options.wide_decimal is WideDecimal.STOP:
            raise Fatal(
                "MR-6532",
                f"{table.full_name}.{column.name} is a DECIMAL of {type_.precision} digits",
            )


@dataclass(frozen=True, slots=True)
class _FormatColumn:
    """A column of the view: ``source`` is its place in an image, -1 for one with the text ``constant``."""

    name: str
    source: int
    value: ValueForm
    fallback: int
    nullable: bool
    constant: str = ""


def _columns(options: FormatOptions, view: TableView, layout: RowLayout) -> list[_FormatColumn]:
    return [_column(column, options, layout) for column in view.columns]


def _column(column: ViewColumn, options: FormatOptions, layout: RowLayout) -> _FormatColumn:
    if column.source < 0:
        type_ = "string" if isinstance(column.value, str) else "int64"
        form = ValueForm(json_values.TEXT_FORM, {"type": type_})
        return _FormatColumn(column.name, -1, form, 0, False, _quoted(column.value))
    original = layout.table.columns[column.source]
    is_text = column.mask is not None and column.mask.kind is MaskKind.HMAC
    form = text_form() if is_text else form_of(original, options)
    fallback = fallback_of(original, options, form)
    return _FormatColumn(column.name, column.source, form, fallback, original.nullable)


def _quoted(value: str | int | None) -> str:
    return json.dumps(value, ensure_ascii=False)


class _Fixed:
    """Collects the texts that are the same in all records; equal ones once."""

    def __init__(self) -> None:
        self._octets = bytearray()
        self._places: dict[str, tuple[int, int]] = {"": (0, 0)}

    def add(self, text: str) -> tuple[int, int]:
        """Its start and end."""
        if text not in self._places:
            start = len(self._octets)
            self._octets += text.encode()
            self._places[text] = (start, len(self._octets))
        return self._places[text]

    def program(self, columns: Sequence[_FormatColumn], lead: str) -> tuple[Ints, str]:
        """Lines of ``kernel.json_values`` for the columns of an object, and the text at its end."""
        lines = []
        text = lead
        for number, column in enumerate(columns):
            text += ("," if number else "") + _quoted(column.name) + ":" + column.constant
            if column.source >= 0:
                value = column.value
                form = (column.source, value.form, value.parameter, column.fallback)
                lines.append((*form, *self.add(text), *self.add(value.epoch)))
                text = ""
        array: Ints = np.array(lines, np.int64).reshape(-1, json_values.COLUMN_WIDTH)
        return array, text + "}"

    def array(self) -> Bytes:
        """All texts."""
        return np.frombuffer(bytes(self._octets) or b" ", np.uint8)


def _envelope(view: TableView, names: FormatNames, schema: str) -> dict[int, str]:
    """The fixed texts of a record of Debezium."""
    database, table = view.name
    return {
        kernel.VALUE: f'{{"schema":{schema},"payload":{{"before":' if schema else '{"before":',
        kernel.AFTER: ',"after":',
        kernel.SOURCE: ',"source":{"version":',
        kernel.CONNECTOR: ',"connector":',
        kernel.NAME: f',"name":{_quoted(names.prefix)},"ts_ms":',
        kernel.SNAPSHOT: ',"snapshot":"',
        kernel.DB: f'","db":{_quoted(database)},"sequence":null,"ts_us":',
        kernel.TS_NS: ',"ts_ns":',
        kernel.TABLE: f',"table":{_quoted(table)},"server_id":',
        kernel.GTID: ',"gtid":',
        kernel.FILE: ',"file":',
        kernel.POS: ',"pos":',
        kernel.ROW: ',"row":',
        kernel.END_SOURCE: ',"thread":null,"query":null},"transaction":',
        kernel.TRANSACTION: '{"id":',
        kernel.TOTAL_ORDER: ',"total_order":',
        kernel.COLLECTION_ORDER: ',"data_collection_order":',
        kernel.OP: ',"op":"',
        kernel.OP_END: '","ts_ms":',
        kernel.TS_US: ',"ts_us":',
        kernel.TAIL: "}}" if schema else "}",
    }


def _key_schema(key: Sequence[_FormatColumn], names: FormatNames) -> connect_schema.Schema:
    fields = [ordered(column.value.schema, optional=False, field=column.name) for column in key]
    return ordered(connect_schema.struct(fields, f"{names.topic}.Key"), optional=False)


def _value_schema(columns: Sequence[_FormatColumn], names: FormatNames) -> connect_schema.Schema:
    fields = [
        ordered(column.value.schema, optional=column.nullable, field=column.name)
        for column in columns
    ]
    row = connect_schema.struct(fields, f"{names.topic}.Value")
    return connect_schema.envelope(row, names.connector, f"{names.topic}.Envelope")
