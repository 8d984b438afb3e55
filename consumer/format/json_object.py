"""The columns of a view as the members of JSON objects, and the texts that are the same in all records of a table.

Errors, all Fatal: see ``formats``.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

import numpy as np

from millrace.consumer.format.columns import WIDE_DIGITS, ValueForm, fallback_of, form_of, text_form
from millrace.consumer.kernel import json_values
from millrace.consumer.kernel.compiled import Bytes
from millrace.consumer.records.numbers import Ints
from millrace.consumer.records.rows import Rows
from millrace.consumer.view.changes import RECORD, Changes
from millrace.errors import Fatal
from millrace.schemas.record.row_layout import RowLayout
from millrace.schemas.table.structure import Column
from millrace.schemas.view.format_options import FormatName, FormatOptions, WideDecimal
from millrace.schemas.view.table_view import TableView, ViewColumn
from millrace.schemas.view.view import MaskKind

Form: TypeAlias = Callable[[Column, FormatOptions], ValueForm]


def check_columns(options: FormatOptions, view: TableView, layout: RowLayout) -> None:
    """Refuse a table that the format or its options can't write: Fatal MR-6532, MR-6533."""
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
class FormatColumn:
    """A column of the view: ``source`` is its place in an image, -1 for one with the text ``constant``."""

    name: str
    source: int
    value: ValueForm
    fallback: int
    nullable: bool
    constant: str = ""


def format_columns(
    options: FormatOptions, view: TableView, layout: RowLayout, form: Form = form_of
) -> list[FormatColumn]:
    """The columns of the view, in its order. ``form``: how the format writes the values of a column."""
    return [_column(column, options, layout, form) for column in view.columns]


def _column(
    column: ViewColumn, options: FormatOptions, layout: RowLayout, form_for: Form
) -> FormatColumn:
    if column.source < 0:
        type_ = "string" if isinstance(column.value, str) else "int64"
        form = ValueForm(json_values.TEXT_FORM, {"type": type_})
        return FormatColumn(column.name, -1, form, 0, False, quoted(column.value))
    original = layout.table.columns[column.source]
    is_text = column.mask is not None and column.mask.kind is MaskKind.HMAC
    form = text_form() if is_text else form_for(original, options)
    fallback = fallback_of(original, options, form)
    return FormatColumn(column.name, column.source, form, fallback, original.nullable)


def quoted(value: str | int | None) -> str:
    """A value as JSON."""
    return json.dumps(value, ensure_ascii=False)


def compact(value: Mapping[str, str]) -> str:
    """An object as JSON, without blanks."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def text_bytes(lines: Ints) -> int:
    """How many bytes the fixed texts of these columns have together."""
    return int((lines[:, json_values.TEXT_END] - lines[:, json_values.TEXT]).sum())


def refuse_value(table: str, rows: Rows, changes: Changes, number: int, status: int) -> NoReturn:
    """Fatal MR-6530, MR-6531: the change ``number`` has a value that the options refuse."""
    gtid = rows.gtid(int(changes.lines[number, RECORD]))
    where = f"a row of {table} in the source transaction {gtid}"
    if status == json_values.NO_DATE:
        raise Fatal("MR-6531", f"{where} has a date that no calendar has")
    raise Fatal("MR-6530", f"{where} has a text that is not valid in its character set")


class FixedTexts:
    """Collects the texts that are the same in all records; equal ones once."""

    def __init__(self) -> None:
        self._octets = bytearray()
        self._places: dict[bytes, tuple[int, int]] = {b"": (0, 0)}

    def add(self, text: str | bytes) -> tuple[int, int]:
        """Its start and end."""
        octets = text.encode() if isinstance(text, str) else text
        if octets not in self._places:
            start = len(self._octets)
            self._octets += octets
            self._places[octets] = (start, len(self._octets))
        return self._places[octets]

    def program(
        self,
        columns: Sequence[FormatColumn],
        lead: str,
        *,
        between: str = ",",
        tail: str = "}",
        has_names: bool = True,
    ) -> tuple[Ints, str]:
        """Lines of ``kernel.json_values`` for the columns of an object or array, and the text at its end."""
        lines = []
        text = lead
        for number, column in enumerate(columns):
            text += between if number else ""
            text += (quoted(column.name) + ":" if has_names else "") + column.constant
            if column.source >= 0:
                lines.append(self._line(column, text))
                text = ""
        return _array(lines), text + tail

    def singles(self, columns: Sequence[FormatColumn]) -> Ints:
        """Lines for the columns of an object that has some of them: the text is the name alone.

        A column with a constant has the place -1, and the constant in its text.
        """
        return _array(
            [self._line(column, quoted(column.name) + ":" + column.constant) for column in columns]
        )

    def _line(self, column: FormatColumn, text: str) -> tuple[int, ...]:
        value = column.value
        form = (column.source, value.form, value.parameter, column.fallback)
        return (*form, *self.add(text), *self.add(value.labels or value.epoch))

    def array(self) -> Bytes:
        """All texts."""
        return np.frombuffer(bytes(self._octets) or b" ", np.uint8)


def _array(lines: Sequence[tuple[int, ...]]) -> Ints:
    array: Ints = np.array(lines, np.int64).reshape(-1, json_values.COLUMN_WIDTH)
    return array
