"""The structure of a table when its rows were logged, from the binlog's table map alone.

    TableSchema ── Column ── ColumnType ── TextEncoding
      database      name      code           charset        e.g. "utf8mb4", "latin1", "binary"
      table         type      parameter      collation_id   as the source numbers it
      columns       nullable  is_unsigned
      key           is_visible  text        (None: the type has no charset)
                              labels        (ENUM, SET; None: the label is not text, or a duplicate)

``code`` is the *real* type: a column that the table map calls STRING, but whose metadata says ENUM or SET, has that
code. ``parameter`` is the column's metadata, one number whose meaning depends on the type:

    VARCHAR, VAR_STRING, VARCHAR_COMPRESSED   length_bytes_max; the length in the row image has 1 byte below 256, else 2
    STRING (CHAR, BINARY)                     length_bytes_max; the same
    BLOB, BLOB_COMPRESSED, JSON, GEOMETRY, VECTOR   bytes of the length in the row image, 1 to 4
    ENUM, SET                                 bytes of the value in the row image: 1 or 2; 1, 2, 3, 4 or 8
    BIT                                       number of bits, 1 to 64
    NEWDECIMAL                                precision << 8 | scale
    TIMESTAMP2, DATETIME2, TIME2              digits of the fraction, 0 to 6
    FLOAT, DOUBLE                             4, 8
    GEOMETRY, VECTOR also have ``extent``: the geometry type (0 to 7), the dimensions
    all others                                0

Guarantees: equal structures compare equal, so two table maps of an unchanged table give equal values (the table id is
not included). Not here, because a table map does not contain it: defaults, display widths, keys other than the primary
key, MariaDB's UUID and INET6 (they look like BINARY(16)), whether a compressed column is declared VARBINARY or BLOB.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import compress, count
from types import MappingProxyType


class TypeCode(IntEnum):
    """The values of ``enum_field_types`` of both servers that rows can have."""

    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    TIMESTAMP = 7  # before MySQL 5.6: 4 bytes, little-endian, no fraction
    LONGLONG = 8
    INT24 = 9
    DATE = 10  # 3 bytes
    TIME = 11  # before MySQL 5.6: 3 bytes
    DATETIME = 12  # before MySQL 5.6: 8 bytes
    YEAR = 13
    NEWDATE = 14  # the same bytes as DATE
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    BLOB_COMPRESSED = 140  # MariaDB
    VARCHAR_COMPRESSED = 141  # MariaDB
    VECTOR = 242  # MySQL 9
    JSON = 245  # MySQL's binary JSON; MariaDB's JSON is a LONGTEXT
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    BLOB = 252  # every TEXT and BLOB
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


INTEGER_BYTES = MappingProxyType(
    {
        TypeCode.TINY: 1,
        TypeCode.SHORT: 2,
        TypeCode.INT24: 3,
        TypeCode.LONG: 4,
        TypeCode.LONGLONG: 8,
    }
)
INTEGER_CODES = frozenset(INTEGER_BYTES)
LABELLED_CODES = frozenset({TypeCode.ENUM, TypeCode.SET})
STRING_CODES = frozenset(
    {TypeCode.VARCHAR, TypeCode.VAR_STRING, TypeCode.STRING, TypeCode.VARCHAR_COMPRESSED}
)
BLOB_CODES = frozenset({TypeCode.BLOB, TypeCode.BLOB_COMPRESSED})
COMPRESSED_CODES = frozenset({TypeCode.BLOB_COMPRESSED, TypeCode.VARCHAR_COMPRESSED})
FRACTION_CODES = frozenset({TypeCode.TIMESTAMP2, TypeCode.DATETIME2, TypeCode.TIME2})
TEMPORAL_CODES = FRACTION_CODES | {
    TypeCode.DATE,
    TypeCode.NEWDATE,
    TypeCode.TIME,
    TypeCode.DATETIME,
    TypeCode.TIMESTAMP,
}

BINARY = "binary"
_KEY_HASH = re.compile(r"DB_ROW_HASH_[0-9]+")
BINARY_COLLATION_ID = 63
UUID_BYTES = 16


@dataclass(frozen=True, slots=True)
class TextEncoding:
    """How bytes of a column are decoded. ``charset`` is the server's name; "binary" means that they are not text."""

    charset: str
    collation_id: int


@dataclass(frozen=True, slots=True)
class ColumnType:
    """One column's type; the module's docstring defines ``parameter`` and ``extent``."""

    code: TypeCode
    parameter: int = 0
    is_unsigned: bool = False
    text: TextEncoding | None = None
    labels: tuple[str | None, ...] = ()
    extent: int = 0

    @property
    def is_text(self) -> bool:
        """True for CHAR, VARCHAR and TEXT with a charset: values are text, or bytes if they are invalid."""
        return (
            self.text is not None
            and self.text.charset != BINARY
            and self.code not in LABELLED_CODES
        )

    @property
    def may_be_uuid(self) -> bool:
        """True for BINARY(16): MariaDB's UUID is one in the binlog, with its bytes in another order."""
        is_binary = self.code is TypeCode.STRING and not self.is_text
        return is_binary and self.length_bytes_max == UUID_BYTES

    @property
    def is_compressed(self) -> bool:
        """True for MariaDB's compressed columns."""
        return self.code in COMPRESSED_CODES

    @property
    def length_bytes_max(self) -> int:
        """Maximum length of a VARCHAR, CHAR, VARBINARY or BINARY in bytes; 0 for other types."""
        return self.parameter if self.code in STRING_CODES else 0

    @property
    def precision(self) -> int:
        """Decimal digits of a NEWDECIMAL; 0 for other types."""
        return self.parameter >> 8 if self.code is TypeCode.NEWDECIMAL else 0

    @property
    def scale(self) -> int:
        """Digits after the decimal point of a NEWDECIMAL; 0 for other types."""
        return self.parameter & 0xFF if self.code is TypeCode.NEWDECIMAL else 0

    @property
    def fraction_digits(self) -> int:
        """Digits of the fractional seconds; 0 for other types."""
        return self.parameter if self.code in FRACTION_CODES else 0

    @property
    def bit_count(self) -> int:
        """Number of bits of a BIT; 0 for other types."""
        return self.parameter if self.code is TypeCode.BIT else 0


@dataclass(frozen=True, slots=True)
class Column:
    """One column, in table order. ``is_visible`` is False for MySQL's INVISIBLE columns, which rows contain."""

    name: str
    type: ColumnType
    nullable: bool
    is_visible: bool = True

    @property
    def is_key_hash(self) -> bool:
        """True if it looks like a hash column that MariaDB keeps for a UNIQUE key over long columns.

        Rows contain such columns (DB_ROW_HASH_1, …), but no statement can name them. A user's column could look the
        same, so omit it only if the target has no column of this name.
        """
        return (
            self.type.code is TypeCode.LONGLONG
            and self.type.is_unsigned
            and _KEY_HASH.fullmatch(self.name) is not None
        )


@dataclass(frozen=True, slots=True)
class TableSchema:
    """``primary_key`` holds column indexes in key order; () without a primary key.

    ``primary_key_prefixes`` has one number per key column: how many characters (bytes of binary columns) are in the
    key, 0 for the whole column.

    ``omitted`` has the names of generated columns that the rows do not contain: MariaDB 11.8 leaves them out of the
    images of UPDATE and DELETE. They are not in ``columns``.
    """

    database: str
    table: str
    columns: tuple[Column, ...]
    primary_key: tuple[int, ...] = ()
    primary_key_prefixes: tuple[int, ...] = ()
    omitted: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """``database.table``, for messages."""
        return f"{self.database}.{self.table}"

    def without(self, present: Sequence[bool]) -> "TableSchema":
        """The structure of rows without some columns, which are not in the key."""
        places = {index: place for place, index in enumerate(compress(count(), present))}
        return replace(
            self,
            columns=tuple(compress(self.columns, present)),
            primary_key=tuple(places[index] for index in self.primary_key),
            omitted=tuple(
                column.name
                for column, is_there in zip(self.columns, present, strict=True)
                if not is_there
            ),
        )
