"""The columns of a view as the members of JSON objects, and the texts that are the same in all records of a table.

Errors: Fatal MR-6532 (a DECIMAL with more than 38 digits), MR-6533 (the format needs a primary key).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from consumer.format.columns import WIDE_DIGITS, ValueForm, fallback_of, form_of, text_form
from consumer.kernel import json_values
from consumer.kernel.compiled import Bytes
from consumer.records.numbers import Ints
from millrace.errors import Fatal
from schemas.record.row_layout import RowLayout
from schemas.view.format_options import FormatName, FormatOptions, WideDecimal
from schemas.view.table_view import TableView, ViewColumn
from schemas.view.view import MaskKind


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
    options: FormatOptions, view: TableView, layout: RowLayout
) -> list[FormatColumn]:
    """The columns of the view, in its order."""
    return [_column(column, options, layout) for column in view.columns]


def _column(column: ViewColumn, options: FormatOptions, layout: RowLayout) -> FormatColumn:
    if column.source < 0:
        type_ = "string" if isinstance(column.value, str) else "int64"
        form = ValueForm(json_values.TEXT_FORM, {"type": type_})
        return FormatColumn(column.name, -1, form, 0, False, quoted(column.value))
    original = layout.table.columns[column.source]
    is_text = column.mask is not None and column.mask.kind is MaskKind.HMAC
    form = text_form() if is_text else form_of(original, options)
    fallback = fallback_of(original, options, form)
    return FormatColumn(column.name, column.source, form, fallback, original.nullable)


def quoted(value: str | int | None) -> str:
    """A value as JSON."""
    return json.dumps(value, ensure_ascii=False)


class FixedTexts:
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

    def program(self, columns: Sequence[FormatColumn], lead: str) -> tuple[Ints, str]:
        """Lines of ``kernel.json_values`` for the columns of an object, and the text at its end."""
        lines = []
        text = lead
        for number, column in enumerate(columns):
            text += ("," if number else "") + quoted(column.name) + ":" + column.constant
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
