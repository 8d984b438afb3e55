"""The key by which a table is divided into chunks, and its values as SQL that any server reads back without loss.

A chunk key is the primary key, or else a unique key without NULL. It has a total order, so each row is in one chunk. An
index on columns of a long type is no chunk key, because MariaDB keeps it as a hash without an order.

    column                    read as                              literal
    number, YEAR              the server's text                    5
    FLOAT                     that of the same DOUBLE              0.10000000149011612
    ENUM, SET (1), BIT        its number, with all 64 bits         3
    date, time                the server's text                    '2026-01-01'
    characters                hex digits of its bytes              _latin1 x'41' COLLATE latin1_bin
    bytes                     hex digits                           x'00ff'
    UUID, INET4, INET6        the server's text                    '10.0.0.1'

(1) The server orders them by number, but compares them with a text as text. So they are compared as numbers, without
the help of the index.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from schemas.sql.quoting import escaped, quoted

_LONG = {"tinytext", "text", "mediumtext", "longtext"}
_LONG |= {"tinyblob", "blob", "mediumblob", "longblob", "json", "vector"}
_BYTES = {"binary", "varbinary"}
_NUMBERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "double", "year"}
_LABELS = {"enum", "set"}


class TableColumn(Protocol):
    """A column as a server describes it, in lower case but for its name."""

    @property
    def name(self) -> str:
        """As the server writes it."""

    @property
    def base_type(self) -> str:
        """The type without its length, such as ``varchar``."""

    @property
    def charset(self) -> str:
        """ "" for a column without one."""

    @property
    def collation(self) -> str:
        """ "" for a column without one."""

    @property
    def nullable(self) -> bool:
        """Whether it may be NULL."""

    @property
    def generated(self) -> bool:
        """Whether the server computes it."""


class TableIndex(Protocol):
    """A unique key, see ``consumer.target.inventory.UniqueKey``."""

    @property
    def name(self) -> str:
        """As the server writes it."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Their names in key order."""

    @property
    def is_whole(self) -> bool:
        """Whether it has no expression and no prefix."""

    @property
    def has_period(self) -> bool:
        """MariaDB's WITHOUT OVERLAPS."""


class _Form(Enum):
    NUMBER = auto()
    QUOTED = auto()
    CHARACTERS = auto()
    BYTES = auto()


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of a chunk key.

    ``order``: what ORDER BY names. ``compared``: what is compared with a literal. ``read``: the expression that returns
    the text from which ``literal`` makes a literal.
    """

    name: str
    order: str
    compared: str
    read: str
    form: _Form
    charset: str = ""
    collation: str = ""

    def literal(self, text: str) -> str:
        """The value as SQL."""
        match self.form:
            case _Form.NUMBER:
                return text
            case _Form.QUOTED:
                return f"'{escaped(text.encode()).decode()}'"
            case _Form.CHARACTERS:
                return f"_{self.charset} x'{text}' COLLATE {self.collation}"
            case _Form.BYTES:
                return f"x'{text}'"


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
    def collations(self) -> tuple[str, ...]:
        """The collation of each column, "" without one. Two sides with other collations have other ranges."""
        return tuple(column.collation for column in self.columns)


def whole_number(name: str) -> str:
    """The number of an ENUM, SET or BIT as SQL. ``name + 0`` is a DOUBLE: it has 53 of the bits of a SET."""
    return f"CAST({name} AS UNSIGNED)"


def chunk_key(
    columns: Mapping[str, TableColumn], unique_keys: Sequence[TableIndex]
) -> ChunkKey | None:
    """The chunk key of a table with these columns and unique keys; None if it has none."""
    usable = [key for key in unique_keys if _is_usable(columns, key)]
    if not usable:
        return None
    chosen = min(usable, key=lambda key: _rank(columns, key))
    return ChunkKey(chosen.name, tuple(_column(columns[name]) for name in chosen.columns))


def _is_usable(columns: Mapping[str, TableColumn], key: TableIndex) -> bool:
    if not key.is_whole or key.has_period or not key.columns:
        return False
    named = [columns.get(name) for name in key.columns]
    return all(
        column is not None and not column.nullable and column.base_type not in _LONG
        for column in named
    )


def _rank(columns: Mapping[str, TableColumn], key: TableIndex) -> tuple[bool, bool, bool, int, str]:
    named = [columns[name] for name in key.columns]
    return (
        key.name != "PRIMARY",
        any(column.generated for column in named),
        any(column.base_type in _LABELS for column in named),
        len(named),
        key.name,
    )


def _column(column: TableColumn) -> KeyColumn:
    name, base = quoted(column.name).decode(), column.base_type
    if base in _LABELS:
        number = whole_number(name)
        return KeyColumn(column.name, name, number, number, _Form.NUMBER)
    if base == "bit":
        return KeyColumn(column.name, name, name, whole_number(name), _Form.NUMBER)
    if base == "float":
        return KeyColumn(column.name, name, name, f"CAST({name} AS DOUBLE)", _Form.NUMBER)
    if base in _BYTES:
        return KeyColumn(column.name, name, name, f"HEX({name})", _Form.BYTES)
    if column.charset:
        form, read = _Form.CHARACTERS, f"HEX({name})"
        return KeyColumn(column.name, name, name, read, form, column.charset, column.collation)
    form = _Form.NUMBER if base in _NUMBERS else _Form.QUOTED
    return KeyColumn(column.name, name, name, f"CAST({name} AS CHAR)", form)
