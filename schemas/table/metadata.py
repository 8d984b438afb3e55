"""The optional metadata at the end of a table map: names, signs, collations, labels, the primary key.

It is a sequence of fields: type (1 byte), packed length, value. Packed is MySQL's length-encoded integer.

     1 SIGNEDNESS               a bit for each numeric column, from the highest; 1 = unsigned
     2 DEFAULT_CHARSET          packed collation, then pairs (packed index among the text columns, packed collation)
     3 COLUMN_CHARSET           packed collation for each text column
     4 COLUMN_NAME              packed length and name for each column: only with binlog_row_metadata=FULL
     5 SET_STR_VALUE            for each SET column: packed count, then packed length and label
     6 ENUM_STR_VALUE           the same for each ENUM column
     7 GEOMETRY_TYPE            packed, for each geometry column
     8 SIMPLE_PRIMARY_KEY       packed column index for each part of the key
     9 PRIMARY_KEY_WITH_PREFIX  pairs (packed column index, packed length in characters, 0 = all of it)
    10, 11 ENUM_AND_SET_…       as 2 and 3, over the ENUM and SET columns
    12 COLUMN_VISIBILITY        a bit for each column, from the highest; 1 = visible (MySQL)
    13 VECTOR_DIMENSIONALITY    packed, for each vector column (MySQL 9)

Numeric columns are the integers, FLOAT, DOUBLE, DECIMAL and YEAR (as unsigned), but not BIT. Text columns are CHAR,
VARCHAR and every BLOB, including the binary ones (collation 63). MySQL also counts VECTOR but not GEOMETRY; MariaDB
also counts GEOMETRY. In both servers each field class decides this, so it was derived from binlogs of MySQL 9.7 and
MariaDB 11.4. Unknown field types are skipped, because rows can be read without the ones that servers add.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from millrace.errors import Fatal
from millrace.schemas.byte_reader import ByteReader
from millrace.schemas.gtid.position import Flavour
from millrace.schemas.table.charset import decode_text
from millrace.schemas.table.collation_ids import charset_of
from millrace.schemas.table.structure import (
    BLOB_CODES,
    INTEGER_CODES,
    LABELLED_CODES,
    STRING_CODES,
    ColumnType,
    TextEncoding,
    TypeCode,
)

RealType: TypeAlias = tuple[TypeCode, int]  # and its parameter

SIGNEDNESS = 1
DEFAULT_CHARSET = 2
COLUMN_CHARSET = 3
COLUMN_NAME = 4
SET_STR_VALUE = 5
ENUM_STR_VALUE = 6
GEOMETRY_TYPE = 7
SIMPLE_PRIMARY_KEY = 8
PRIMARY_KEY_WITH_PREFIX = 9
ENUM_AND_SET_DEFAULT_CHARSET = 10
ENUM_AND_SET_COLUMN_CHARSET = 11
COLUMN_VISIBILITY = 12
VECTOR_DIMENSIONALITY = 13

_NUMERIC = INTEGER_CODES | {TypeCode.FLOAT, TypeCode.DOUBLE, TypeCode.NEWDECIMAL, TypeCode.YEAR}
_TEXT = STRING_CODES | BLOB_CODES
_COUNTED_AS_TEXT = {
    Flavour.MYSQL: _TEXT | {TypeCode.VECTOR},
    Flavour.MARIADB: _TEXT | {TypeCode.GEOMETRY},
}


@dataclass(frozen=True, slots=True)
class OptionalMetadata:
    """The fields of one table map and the real types of its columns; ``table`` is for messages."""

    fields: Mapping[int, bytes]
    real: tuple[RealType, ...]
    flavour: Flavour
    table: str

    @classmethod
    def read(
        cls, reader: ByteReader, *, real: tuple[RealType, ...], flavour: Flavour, table: str
    ) -> "OptionalMetadata":
        """Reads all remaining bytes of ``reader``; Fatal MR-6004 if they have no column names."""
        fields: dict[int, bytes] = {}
        while reader.left:
            kind = reader.uint(1)
            if kind in fields:
                reader.refuse(f"optional metadata {kind} appears twice")
            fields[kind] = reader.take(reader.packed())
        if COLUMN_NAME not in fields:
            raise Fatal("MR-6004", f"the table map of {table} has no column names", table=table)
        return cls(fields, real, flavour, table)

    def names(self) -> list[str]:
        """The names of all columns."""
        reader = self._reader(COLUMN_NAME)
        names = [_text(reader) for _ in self.real]
        reader.end()
        return names

    def types(self) -> list[ColumnType]:
        """The types of all columns: the real types completed by the optional fields."""
        unsigned = self._unsigned()
        collations = self._collations(
            _COUNTED_AS_TEXT[self.flavour], DEFAULT_CHARSET, COLUMN_CHARSET
        )
        collations |= self._collations(
            LABELLED_CODES, ENUM_AND_SET_DEFAULT_CHARSET, ENUM_AND_SET_COLUMN_CHARSET
        )
        labels = self._labels(TypeCode.SET, SET_STR_VALUE)
        labels |= self._labels(TypeCode.ENUM, ENUM_STR_VALUE)
        extents = self._extents(TypeCode.GEOMETRY, GEOMETRY_TYPE)
        extents |= self._extents(TypeCode.VECTOR, VECTOR_DIMENSIONALITY)
        types = []
        for index, (code, parameter) in enumerate(self.real):
            text = None
            if code in _TEXT or code in LABELLED_CODES:
                collation_id = collations[index]
                text = TextEncoding(charset_of(collation_id), collation_id)
            types.append(
                ColumnType(
                    code,
                    parameter,
                    unsigned.get(index, False),
                    text,
                    tuple(_decoded(labels.get(index, []), text)),
                    extents.get(index, 0),
                )
            )
        return types

    def visibility(self) -> list[bool]:
        """Whether each column is visible; all are if the server does not send it (MariaDB)."""
        if COLUMN_VISIBILITY not in self.fields:
            return [True] * len(self.real)
        return self._bits(COLUMN_VISIBILITY, len(self.real))

    def primary_key(self) -> list[tuple[int, int]]:
        """(column index, prefix length or 0) in key order; empty without a primary key."""
        key: list[tuple[int, int]] = []
        for kind in (SIMPLE_PRIMARY_KEY, PRIMARY_KEY_WITH_PREFIX):
            reader = self._reader(kind)
            while reader.left:
                index = reader.packed()
                key.append((index, reader.packed() if kind == PRIMARY_KEY_WITH_PREFIX else 0))
                if index >= len(self.real) or index in (known for known, _ in key[:-1]):
                    reader.refuse(f"column {index} in the key of {self.table}")
        return key

    def _unsigned(self) -> dict[int, bool]:
        numeric = self._indexes(_NUMERIC)
        return dict(zip(numeric, self._bits(SIGNEDNESS, len(numeric)), strict=True))

    def _collations(self, codes: Collection[TypeCode], default: int, each: int) -> dict[int, int]:
        columns = self._indexes(codes)
        if not columns:
            return {}
        if each in self.fields:
            reader = self._reader(each)
            found = {index: reader.packed() for index in columns}
            reader.end()
            return found
        reader = self._reader(default)
        found = dict.fromkeys(columns, reader.packed())
        while reader.left:
            position = reader.packed()
            if position >= len(columns):
                reader.refuse(f"a collation for text column {position} of {len(columns)}")
            found[columns[position]] = reader.packed()
        return found

    def _labels(self, code: TypeCode, kind: int) -> dict[int, list[bytes]]:
        columns = self._indexes({code})
        reader = self._reader(kind)
        found = {
            index: [reader.take(reader.packed()) for _ in range(reader.packed())]
            for index in columns
        }
        reader.end()
        return found

    def _extents(self, code: TypeCode, kind: int) -> dict[int, int]:
        if kind not in self.fields:
            return {}
        reader = self._reader(kind)
        found = {index: reader.packed() for index in self._indexes({code})}
        reader.end()
        return found

    def _bits(self, kind: int, count: int) -> list[bool]:
        """``count`` bits, starting at the highest bit of the first byte."""
        reader = self._reader(kind)
        packed = reader.take((count + 7) // 8)
        reader.end()
        return [bool(packed[i // 8] << i % 8 & 0x80) for i in range(count)]

    def _indexes(self, codes: Collection[TypeCode]) -> list[int]:
        return [index for index, (code, _) in enumerate(self.real) if code in codes]

    def _reader(self, kind: int) -> ByteReader:
        return ByteReader(self.fields.get(kind, b""), f"optional metadata {kind} of {self.table}")


def unsupported(what: str, *, fix: str = "") -> NoReturn:
    """Raise Fatal MR-6005."""
    raise Fatal("MR-6005", f"{what} is not supported", fix=fix)


def _decoded(labels: list[bytes], text: TextEncoding | None) -> Iterator[str | None]:
    """The labels as text; None for a label that is invalid in its charset or equals an earlier one."""
    seen: set[str] = set()
    for label in labels:
        name = decode_text(text.charset if text else "utf8mb4", label)
        yield None if name is None or name in seen else name
        if name is not None:
            seen.add(name)


def _text(reader: ByteReader) -> str:
    name = reader.take(reader.packed())
    try:
        return name.decode()
    except UnicodeDecodeError:
        reader.refuse(f"the name {name!r} is not UTF-8")
