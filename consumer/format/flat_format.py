"""``maxwell-json`` and ``canal-json``: one pass of a kernel over all changes of a batch.

``make_flat_format`` compiles options, view and structure into arrays, once for each table and schema.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from millrace.consumer.format.encoded import LINE_WIDTH, RECORDS_OF_A_CHANGE_MAX, Encoded
from millrace.consumer.format.flat_columns import canal_form, jdbc_type, maxwell_form, mysql_type
from millrace.consumer.format.json_object import (
    FixedTexts,
    FormatColumn,
    check_columns,
    compact,
    format_columns,
    quoted,
    refuse_value,
    text_bytes,
)
from millrace.consumer.format.table_format import ALL_PARTITIONS
from millrace.consumer.format.undecodable import Undecoded, decoded, undecoded
from millrace.consumer.kernel import canal_values, flat_records, maxwell_values
from millrace.consumer.kernel.compiled import Bytes
from millrace.consumer.kernel.json_values import OK
from millrace.consumer.kernel.record_parts import KEY_TAIL, measure
from millrace.consumer.records.numbers import Ints
from millrace.consumer.records.rows import Rows
from millrace.consumer.view.changes import Changes
from millrace.schemas.record.row_layout import RowLayout
from millrace.schemas.view.format_options import (
    BootstrapType,
    FormatName,
    FormatOptions,
    KeyChanges,
    KeyFormat,
)
from millrace.schemas.view.table_view import TableView

QUOTE = '"'
_NUMBER_BYTES = 8  # of a type in ``sqlType``
_Pieces: TypeAlias = dict[int, str]
_MAXWELL_SETTINGS = {
    maxwell_values.HAS_COMMIT: "output_commit_info",
    maxwell_values.HAS_XOFFSET: "output_xoffset",
    maxwell_values.HAS_POSITION: "output_binlog_position",
    maxwell_values.HAS_GTID: "output_gtid_position",
    maxwell_values.HAS_SERVER_ID: "output_server_id",
    maxwell_values.HAS_PRIMARY: "output_primary_keys",
    maxwell_values.HAS_NULLS: "output_nulls",
}


@dataclass(frozen=True, slots=True)
class _Arrays:
    """The input of ``kernel.flat_records`` for one table."""

    columns: Ints
    keys: Ints
    singles: Ints
    extras: Ints
    fixed: Bytes
    pieces: Ints
    settings: Ints


@dataclass(frozen=True, slots=True)
class FlatFormat:
    """One table in Maxwell's or Canal's format. ``width``: the columns of an image in the set topic."""

    table: str
    width: int
    arrays: _Arrays
    fixed_bytes: int  # in a key and a value
    texts: tuple[Undecoded, ...]

    def encode(
        self,
        rows: Rows,
        changes: Changes,
        *,
        orders: Ints | None = None,
        owned: Bytes = ALL_PARTITIONS,
    ) -> Encoded:
        """See ``TableFormat``."""
        assert orders is None, "there is no transaction topic"
        changes = decoded(changes, rows, self.texts)
        arrays, offsets = self.arrays, rows.values.offsets
        size = measure(
            changes.cells, changes.lines, self.width, len(arrays.keys), self.fixed_bytes, offsets
        )
        out = np.empty(size + 1, np.uint8)
        lines: Ints = np.empty((RECORDS_OF_A_CHANGE_MAX * len(changes), LINE_WIDTH), np.int64)
        length, count, status = flat_records.encode(
            out,
            changes.payload,
            changes.cells,
            changes.lines,
            rows.values.payload,
            offsets,
            rows.records,
            rows.cells,
            self.width,
            arrays.columns,
            arrays.keys,
            arrays.singles,
            arrays.extras,
            arrays.fixed,
            arrays.pieces,
            arrays.settings,
            owned,
            lines,
        )
        if status != OK:
            refuse_value(self.table, rows, changes, int(count), int(status))
        return Encoded(out[:length], lines[:count])


@dataclass(frozen=True, slots=True)
class _Program:
    """The arrays of a format but the fixed texts. ``extra_bytes``: what ``extras`` adds to a value."""

    columns: Ints
    keys: Ints
    extras: Ints
    extra_bytes: int
    pieces: _Pieces


def make_flat_format(options: FormatOptions, view: TableView, layout: RowLayout) -> FlatFormat:
    """The records of a table in a view; Fatal MR-6532."""
    check_columns(options, view, layout)
    fixed = FixedTexts()
    is_canal = options.name is FormatName.CANAL_JSON
    columns = format_columns(options, view, layout, canal_form if is_canal else maxwell_form)
    if is_canal:
        columns = [_with_text(column) for column in columns]
        program = _canal(columns, view, fixed)
    else:
        program = _maxwell(columns, view, options, fixed)
    singles = fixed.singles(columns)
    places: Ints = np.zeros((max(program.pieces) + 1, 2), np.int64)
    for piece, text in program.pieces.items():
        places[piece] = fixed.add(text)
    settings: Ints = np.zeros(maxwell_values.SETTINGS, np.int64)
    settings[flat_records.IS_CANAL] = is_canal
    settings[flat_records.HAS_TOMBSTONES] = options.tombstones
    settings[flat_records.SPLITS_KEYS] = options.key_changes is KeyChanges.DELETE_AND_INSERT
    settings[maxwell_values.IS_BOOTSTRAP] = options.bootstrap_type is BootstrapType.BOOTSTRAP_INSERT
    for setting, name in _MAXWELL_SETTINGS.items():
        settings[setting] = getattr(options, name)
    # both keys, and an image in each of data and old
    fixed_bytes = program.extra_bytes + sum(
        map(text_bytes, (*2 * (program.keys,), program.columns))
    )
    fixed_bytes += text_bytes(singles) + sum(len(text.encode()) for text in program.pieces.values())
    table = layout.table
    return FlatFormat(
        table.full_name,
        len(table.columns),
        _Arrays(
            program.columns,
            program.keys,
            singles,
            program.extras,
            fixed.array(),
            places,
            settings,
        ),
        fixed_bytes,
        undecoded(options, view, layout),
    )


def _with_text(column: FormatColumn) -> FormatColumn:
    """A column in which a constant number is a string, as all values of Canal."""
    constant = column.constant
    is_number = column.source < 0 and not constant.startswith(QUOTE)
    return replace(column, constant=quoted(constant)) if is_number else column


def _maxwell(
    columns: Sequence[FormatColumn], view: TableView, options: FormatOptions, fixed: FixedTexts
) -> _Program:
    database, table = map(quoted, view.name)
    key = [columns[at] for at in view.key]
    named = [replace(column, name=column.name.lower()) for column in key]
    if options.kafka_key_format is KeyFormat.HASH:
        named = [replace(column, name=f"pk.{column.name}") for column in named]
        lead = f'{{"database":{database},"table":{table},'
        keys, key_tail = fixed.program(named, lead)
    else:
        keys, key_tail = fixed.program(named, f"[{database},{table},[{{", between="},{", tail="}]]")
    lead = ',"primary_key":['
    extras, primary_tail = fixed.program(key, lead, has_names=False, tail="]")
    names = ",".join(quoted(column.name) for column in key)
    lead = f',"primary_key_columns":[{names}]' if options.output_primary_key_columns else ""
    lead += ',"data":{'
    data, data_tail = fixed.program(columns, lead)
    pieces = {
        KEY_TAIL: key_tail,
        maxwell_values.HEAD: f'{{"database":{database},"table":{table},"type":"',
        maxwell_values.TS: '","ts":',
        maxwell_values.XID: ',"xid":',
        maxwell_values.XOFFSET: ',"xoffset":',
        maxwell_values.COMMIT: ',"commit":true',
        maxwell_values.POSITION: ',"position":',
        maxwell_values.GTID: ',"gtid":',
        maxwell_values.SERVER_ID: ',"server_id":',
        maxwell_values.PRIMARY_TAIL: primary_tail,
        maxwell_values.DATA: lead,
        maxwell_values.DATA_TAIL: data_tail,
        maxwell_values.OLD: ',"old":{',
        maxwell_values.OBJECT_TAIL: "}",
        maxwell_values.TAIL: "}",
    }
    return _Program(data, keys, extras, text_bytes(extras), pieces)


def _canal(columns: Sequence[FormatColumn], view: TableView, fixed: FixedTexts) -> _Program:
    database, table = map(quoted, view.name)
    key = [columns[at] for at in view.key]
    keys, key_tail = fixed.program(key, "{")
    data, data_tail = fixed.program(columns, '{"data":[{')
    extras, types_tail = _jdbc_types(view, fixed)
    in_order = sorted(view.key)
    names = "[" + ",".join(quoted(columns[at].name) for at in in_order) + "]" if key else "null"
    types = {column.name: mysql_type(column.column.type) for column in view.columns}
    pieces = {
        KEY_TAIL: key_tail,
        canal_values.DATA_TAIL: f'{data_tail}],"database":{database},"es":',
        canal_values.GTID: ',"gtid":',
        canal_values.ID: ',"id":',
        canal_values.TYPES: f',"isDdl":false,"mysqlType":{compact(types)},"old":',
        canal_values.OLD: "[{",
        canal_values.OLD_TAIL: "}]",
        canal_values.KEY: f',"pkNames":{names},"sql":"","sqlType":{{',
        canal_values.TABLE: f'{types_tail}}},"table":{table},"ts":',
        canal_values.TYPE: ',"type":"',
        canal_values.TAIL: '"}',
    }
    sizes = int((extras[:, canal_values.TEXT_END] - extras[:, canal_values.TEXT]).sum())
    return _Program(data, keys, extras, sizes + _NUMBER_BYTES * len(extras), pieces)


def _jdbc_types(view: TableView, fixed: FixedTexts) -> tuple[Ints, str]:
    """Lines of ``kernel.canal_values`` for the columns whose type depends on the value, and the text after the last."""
    lines: list[tuple[int, ...]] = []
    text = ""
    for number, column in enumerate(view.columns):
        type_ = jdbc_type(column.column.type)
        text += ("," if number else "") + quoted(column.name) + ":"
        if column.source < 0 or type_.is_fixed:
            text += str(type_.low)
            continue
        codes = (type_.if_null, type_.low, type_.high)
        lines.append((*fixed.add(text), column.source, type_.bits, *codes))
        text = ""
    array: Ints = np.array(lines, np.int64).reshape(-1, canal_values.EXTRA_WIDTH)
    return array, text
