"""Texts that are not valid in their character set, and labels that have no text: what the record says instead.

The set topic has raw bytes of such a text, the number of an ENUM or the bits of a SET (docs/record.md). With
``undecodable: replace``, ``decoded`` adds texts after the bytes of the batch and points the cells at them: U+FFFD for
each invalid part, as Java and Python do. They are rare, so this is Python, and only records with a mark are looked at.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from millrace.consumer.kernel import walk
from millrace.consumer.records.numbers import Ints
from millrace.consumer.records.rows import Rows
from millrace.consumer.view.changes import AFTER, BEFORE, RECORD, Changes
from millrace.schemas.record.row_layout import RowLayout
from millrace.schemas.table.charset import UNICODE_CODECS
from millrace.schemas.table.structure import LABELLED_CODES, ColumnType, TypeCode
from millrace.schemas.view.format_options import FormatName, FormatOptions, Undecodable
from millrace.schemas.view.table_view import TableView

REPLACEMENT = "\ufffd"


@dataclass(frozen=True, slots=True)
class Undecoded:
    """A column whose values may have no text, at ``place`` in an image."""

    place: int
    type: ColumnType
    rule: Undecodable


def undecoded(options: FormatOptions, view: TableView, layout: RowLayout) -> tuple[Undecoded, ...]:
    """The columns of a view whose values may have no text. Canal's labels need none: they are numbers."""
    columns = layout.table.columns
    has_labels = options.name is not FormatName.CANAL_JSON
    return tuple(
        Undecoded(column.source, columns[column.source].type, options.undecodable)
        for column in view.columns
        if column.source >= 0
        and (
            columns[column.source].type.is_text
            or (has_labels and columns[column.source].type.code in LABELLED_CODES)
        )
    )


def decoded(changes: Changes, rows: Rows, columns: tuple[Undecoded, ...]) -> Changes:
    """The changes with a text for every value that has none; those that the options leave as bytes stay."""
    marked = rows.records[changes.lines[:, RECORD], walk.HAS_FALLBACK] != 0
    if not columns or not marked.any():
        return changes
    firsts = changes.lines[marked][:, [BEFORE, AFTER]].ravel()
    firsts = np.unique(firsts[firsts >= 0])
    texts = _Texts(changes)
    for column in columns:
        for cell in _cells(changes.cells, firsts, column):
            texts.replace(int(cell), column)
    return texts.changes()


def _cells(cells: Ints, firsts: Ints, column: Undecoded) -> Ints:
    """The cells of a column that have no text."""
    places = firsts + column.place
    kinds = cells[places, 0]
    without_text: Ints = places[(kinds == walk.BYTES) | (kinds == walk.INT)]
    return without_text


class _Texts:
    """Adds texts after the payload of changes, and copies the cells once."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._cells = changes.cells.copy()
        self._added = bytearray()

    def replace(self, cell: int, column: Undecoded) -> None:
        """Point the cell at its text."""
        kind, start, end = (int(part) for part in self._cells[cell, :3])
        payload = self._changes.payload
        if kind == walk.BYTES:
            if column.rule is not Undecodable.REPLACE:
                return
            text = _replaced(column.type, payload[start:end].tobytes())
        else:
            number, _ = walk.read_long(payload, start, end)
            label = _labelled(column.type, int(number), column.rule)
            if label is None:  # the kernel stops there, as at bytes
                self._cells[cell, 0] = walk.BYTES
                return
            text = label
        place = len(payload) + len(self._added)
        self._added += text.encode()
        self._cells[cell, :3] = walk.STRING, place, place + len(text.encode())

    def changes(self) -> Changes:
        """The changes with the texts."""
        added = np.frombuffer(bytes(self._added), np.uint8)
        payload = np.concatenate([self._changes.payload, added])
        return replace(self._changes, payload=payload, cells=self._cells)


def _replaced(type_: ColumnType, octets: bytes) -> str:
    charset = type_.text.charset if type_.text is not None else "utf8mb4"
    return octets.decode(_codec(charset), "replace")


@lru_cache(maxsize=64)
def _codec(charset: str) -> str:
    """Python's codec for a character set of MySQL; its differences from the server's only matter for valid text."""
    for name in (UNICODE_CODECS.get(charset, charset), _CODECS.get(charset, "ascii")):
        try:
            b"".decode(name)
        except LookupError:
            continue
        return name
    return "ascii"


_CODECS = {
    "latin1": "cp1252",
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "greek": "iso8859_7",
    "hebrew": "iso8859_8",
    "koi8r": "koi8_r",
    "koi8u": "koi8_u",
    "sjis": "shift_jis",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
    "euckr": "euc_kr",
    "macroman": "mac_roman",
    "macce": "mac_latin2",
    "tis620": "tis_620",
}


def _labelled(type_: ColumnType, number: int, rule: Undecodable) -> str | None:
    """The text of an ENUM's number or a SET's bits; None to stop. The number 0 of an ENUM is the empty text."""
    labels = list(_labels(type_, number))
    if None not in labels:
        return ",".join(label or "" for label in labels)
    if rule is Undecodable.STOP:
        return None
    if rule is Undecodable.BYTES:
        return str(number)
    return ",".join(REPLACEMENT if label is None else label for label in labels)


def _labels(type_: ColumnType, number: int) -> Iterator[str | None]:
    if type_.code is TypeCode.ENUM:
        if number:
            yield type_.labels[number - 1] if number <= len(type_.labels) else None
        return
    bits = number & (2**64 - 1)
    for place in range(64):
        if bits >> place & 1:
            yield type_.labels[place] if place < len(type_.labels) else None
