"""The key by which a table is divided into chunks, and its values as SQL that any server reads back without loss.

A chunk key is the primary key, or else a unique key without NULL. It has a total order, so each row is in one chunk. No
chunk key is an index that MariaDB keeps as a hash without an order, as it does for long columns, or one that an
administrator has hidden from the optimizer.

The order is that of the index, so that the server reads the rows in it without sorting them. An index whose columns all
descend is read in the reverse order. MySQL does so for no other one.

    column                    read as                              literal
    number, YEAR              the server's text                    5
    FLOAT                     that of the same DOUBLE              0.10000000149011612
    ENUM, SET (1), BIT        its number, with all 64 bits         3
    date, time                the server's text                    '2026-01-01'
    characters                hex digits of its bytes              _latin1 x'41' COLLATE latin1_bin
    bytes                     hex digits                           x'00ff'
    UUID, INET4, INET6        the server's text                    '10.0.0.1'

(1) The servers order them by number, and compare them with a text as text, so they are compared with numbers. The
index finds the rows with a number, but none below or above it. So a range is a list of its numbers, if the type has at
most ``LISTED_MAX``: that is a SET of 8 labels. Above, each range reads the index from its begin.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from millrace.drivers.mysql.catalog import CatalogColumn, UniqueKey
from millrace.schemas.sql.quoting import characters, charset_name, hex_bytes, number, quoted, string

_LONG = {"tinytext", "text", "mediumtext", "longtext"}
_LONG |= {"tinyblob", "blob", "mediumblob", "longblob", "json", "vector"}
_BYTES = {"binary", "varbinary"}
_NUMBERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "double", "year"}
_LABELS = {"enum", "set"}
_LABEL = re.compile(r"'(?:[^']|'')*'")
LISTED_MAX = 256  # numbers; with more, the servers stop looking them up one by one
_DOUBLE_MAX = 1 << 53  # the servers compare a SET with a number as DOUBLE
NOTHING = "FALSE"
FORCED = " FORCE INDEX (PRIMARY)"  # no primary key can be hidden


class _Form(Enum):
    NUMBER = auto()
    LABELS = auto()
    QUOTED = auto()
    CHARACTERS = auto()
    BYTES = auto()


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of a chunk key.

    ``order``: its quoted name. ``read``: the expression that returns the text from which ``literal`` makes a literal.
    ``numbers``: how many numbers the values of an ENUM or a SET have; 0 if they are too many for a list.
    ``descends``: in the order of the key, larger values come first.
    """

    name: str
    order: str
    read: str
    form: _Form
    charset: str = ""
    collation: str = ""
    numbers: int = 0
    descends: bool = False

    @property
    def sorting(self) -> str:
        """Its part of an ORDER BY."""
        return f"{self.order} DESC" if self.descends else self.order

    def literal(self, text: str) -> str:
        """The value as SQL."""
        match self.form:
            case _Form.NUMBER | _Form.LABELS:
                return number(text)
            case _Form.QUOTED:
                return string(text)
            case _Form.CHARACTERS:
                return f"{characters(text, self.charset)} COLLATE {charset_name(self.collation)}"
            case _Form.BYTES:
                return hex_bytes(text)

    def equals(self, text: str) -> str:
        """The condition of rows with this value."""
        is_large = self.form is _Form.LABELS and not _is_below(text, _DOUBLE_MAX)
        return f"{self.read if is_large else self.order} = {self.literal(text)}"

    def is_one_of(self, texts: Sequence[str]) -> str:
        """The condition of rows with one of these values."""
        if self.form is _Form.LABELS and not all(_is_below(text, _DOUBLE_MAX) for text in texts):
            return " OR ".join(f"({self.equals(text)})" for text in texts)
        return f"{self.order} IN ({', '.join(map(self.literal, texts))})"

    def beyond(self, text: str, sign: str, *, with_border: bool) -> str:
        """The condition of rows after (``>``) or before (``<``) this value in the order of the key."""
        if self.descends:
            sign = "<" if sign == ">" else ">"
        if self.form is not _Form.LABELS:
            return f"{self.order} {sign}{'=' if with_border else ''} {self.literal(text)}"
        if not self.numbers or not _is_below(text, self.numbers):
            return f"{self.read} {sign}{'=' if with_border else ''} {self.literal(text)}"
        border = int(text)
        if sign == ">":
            listed = range(border if with_border else border + 1, self.numbers)
        else:
            listed = range(border + 1 if with_border else border)
        return f"{self.order} IN ({', '.join(map(str, listed))})" if listed else NOTHING


@dataclass(frozen=True, slots=True)
class ChunkKey:
    """``name``: that of the index."""

    name: str
    columns: tuple[KeyColumn, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def order_name(self) -> str:
        """The index and its order, for storage beside borders of it, in at most 64 characters."""
        down = "".join("-" if column.descends else "+" for column in self.columns)
        return self.name if "-" not in down else f"{down} {self.name}"[:64]

    @property
    def collations(self) -> tuple[str, ...]:
        """The collation of each column, "" without one. Two sides with other collations have other ranges."""
        return tuple(column.collation for column in self.columns)


def whole_number(name: str) -> str:
    """The number of an ENUM, SET or BIT as SQL. ``name + 0`` is a DOUBLE: it has 53 of the bits of a SET."""
    return f"CAST({name} AS UNSIGNED)"


def chunk_key(
    columns: Mapping[str, CatalogColumn], unique_keys: Sequence[UniqueKey]
) -> ChunkKey | None:
    """The chunk key of a table with these columns and unique keys; None if it has none."""
    usable = [key for key in unique_keys if _is_usable(columns, key)]
    if not usable:
        return None
    chosen = min(usable, key=lambda key: _rank(columns, key))
    is_reversed = set(chosen.descending) == set(chosen.columns)
    return ChunkKey(
        chosen.name,
        tuple(
            replace(_column(columns[name]), descends=name in chosen.descending and not is_reversed)
            for name in chosen.columns
        ),
    )


def _is_usable(columns: Mapping[str, CatalogColumn], key: UniqueKey) -> bool:
    if not key.is_whole or key.has_period or not key.columns or not key.finds_rows:
        return False
    named = [columns.get(name) for name in key.columns]
    return all(
        column is not None and not column.nullable and column.base_type not in _LONG
        for column in named
    )


def _rank(
    columns: Mapping[str, CatalogColumn], key: UniqueKey
) -> tuple[bool, bool, bool, int, str]:
    named = [columns[name] for name in key.columns]
    return (
        key.name != "PRIMARY",
        any(column.generated for column in named),
        any(column.base_type in _LABELS for column in named),
        len(named),
        key.name,
    )


def _column(column: CatalogColumn) -> KeyColumn:
    name, base = quoted(column.name).decode(), column.base_type
    if base in _LABELS:
        return KeyColumn(
            column.name, name, whole_number(name), _Form.LABELS, numbers=_numbers(column)
        )
    if base == "bit":
        return KeyColumn(column.name, name, whole_number(name), _Form.NUMBER)
    if base == "float":
        return KeyColumn(column.name, name, f"CAST({name} AS DOUBLE)", _Form.NUMBER)
    if base in _BYTES:
        return KeyColumn(column.name, name, f"HEX({name})", _Form.BYTES)
    if column.charset:
        form, read = _Form.CHARACTERS, f"HEX({name})"
        return KeyColumn(column.name, name, read, form, column.charset, column.collation)
    form = _Form.NUMBER if base in _NUMBERS else _Form.QUOTED
    return KeyColumn(column.name, name, f"CAST({name} AS CHAR)", form)


def _numbers(column: CatalogColumn) -> int:
    """How many numbers the values of an ENUM or a SET have; 0 above ``LISTED_MAX``. An ENUM also has 0."""
    labels = len(_LABEL.findall(column.type_text))
    count = labels + 1 if column.base_type == "enum" else 1 << labels
    return count if count <= LISTED_MAX else 0


def _is_below(text: str, limit: int) -> bool:
    return text.isascii() and text.isdecimal() and int(text) < limit
