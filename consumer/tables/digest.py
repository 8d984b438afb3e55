"""Digests of rows, computed by the servers: equal rows have equal digests on both sides, on either flavour.

A server joins the exact values of a row to one text, and takes its SHA-224. Each row has exactly one text:

    mask | value | … | length | … | bytes | …

    mask      which columns are NULL. A NULL has no value and no length
    value     of the columns whose text never has a ``|``: numbers, dates, hex digits
    length    of each following value but the last
    bytes     of texts and binary values, in their character set. Above ``LONG_BYTES``, their SHA-224

So two different rows have different texts. The text is at most 1 MiB long (``PACKET_BYTES_MIN``): a server makes a
longer one than ``max_allowed_packet`` NULL.

    sum of a chunk       count of rows, and the sum of the first 64 bits of their digests. Two chunks with other rows
                         have equal sums with a probability of 2⁻⁶⁴. The order does not matter; duplicate rows count
    between two MySQL    the XOR of all 224 bits, if a key makes the rows unique: two equal rows would cancel. It
                         costs the server a quarter less. MariaDB has XOR of numbers only
    digest of a row      the first 128 bits

The rules for each type are those of ``consumer.tables.exact_text``: where both sides have the same type and character
set, the bytes themselves are joined, else the text that is defined there. The two flavours print a FLOAT differently
inside an expression. If they are compared, its value becomes three DECIMALs, for middle, small and great values, and
its sign. They print a DOUBLE with the same digits, but small values with or without an exponent; inside a JSON array
they print it alike, but for the ``.0`` of MySQL. Pure.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from millrace.consumer.tables.exact_text import exact_column, is_ambiguous_set
from millrace.drivers.mysql.catalog import CatalogColumn, CatalogTable
from millrace.schemas.gtid import Flavour
from millrace.schemas.sql.quoting import quoted, table_name

LONG_BYTES = 200
# 65,535 bytes of a row as utf8mb4 or hex digits, and 1,017 columns with LONG_BYTES
PACKET_BYTES_MIN = 1 << 20
_MASK_COLUMNS = 50  # a whole number in either server

# a FLOAT has up to 38 digits before and 45 after the point, a DECIMAL 35 and 30
_FLOAT = (
    "CONCAT(CAST({0} AS DECIMAL(65,30)), ':', CAST({0} * 1e35 AS DECIMAL(65,30)), ':',"
    " CAST({0} * 1e-10 AS DECIMAL(65,30)), LEFT(CONCAT({0}), 1) = '-')"
)

_DOUBLE = "TRIM(TRAILING '.0' FROM JSON_EXTRACT(JSON_ARRAY({0}), '$[0]'))"

_TEXTS = {"char", "varchar", "set"}
_LONG_TEXTS = {"tinytext", "text", "mediumtext", "longtext"}
_BYTES = {"binary", "varbinary"}
_LONG_BYTES = {"tinyblob", "blob", "mediumblob", "longblob"}
_PLAIN = {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal"}
_PLAIN |= {"year", "date", "time", "datetime", "timestamp"}


@dataclass(frozen=True, slots=True)
class _Value:
    """The SQL of a value, and that of its length if it may have any byte."""

    sql: str
    length: str = ""


@dataclass(frozen=True, slots=True)
class TableDigest:
    """The SQL for one side. ``row``: the digest of a row as 56 hex digits. ``has_xor``: a sum is an XOR."""

    table: str
    row: str
    has_xor: bool = False

    @property
    def short(self) -> str:
        """128 bits of a row's digest, as bytes."""
        return f"UNHEX(LEFT({self.row}, 32))"

    def sums(self, where: str, index: str = "") -> str:
        """The query for (rows, sum). The sum has no meaning without rows. ``index``: a hint."""
        rows = f"FROM {self.table}{index} WHERE {where}"
        if self.has_xor:
            return f"SELECT COUNT(*), HEX(BIT_XOR(UNHEX({self.row}))) {rows}"
        number = f"CAST(CONV(LEFT({self.row}, 16), 16, 10) AS UNSIGNED)"
        return f"SELECT COUNT(*), SUM({number}) {rows}"


def table_digest(
    table: CatalogTable,
    names: Sequence[str],
    other: CatalogTable,
    *,
    flavours: Collection[Flavour] = (),
    is_unique: bool = False,
) -> TableDigest:
    """The digest of rows of ``table`` over these columns, for comparison with ``other``.

    ``flavours``: of the two servers. ``is_unique``: no two rows of a side are equal.
    """
    is_mixed = len(flavours) > 1
    columns = [(table.columns[name], other.columns[name]) for name in names]
    values = [_value(*pair, is_mixed=is_mixed) for pair in columns]
    lengths = [value.length for value in values if value.length][:-1]
    parts = [
        *_masks([pair for pair in columns if pair[0].nullable or pair[1].nullable]),
        *(value.sql for value in values if not value.length),
        *lengths,
        *(value.sql for value in values if value.length),
    ]
    row = f"SHA2(CONCAT_WS(CAST('|' AS BINARY), {', '.join(parts)}), 224)"
    has_xor = is_unique and set(flavours) == {Flavour.MYSQL}
    return TableDigest(table_name(*table.key).decode(), row, has_xor)


def _masks(columns: Sequence[tuple[CatalogColumn, CatalogColumn]]) -> list[str]:
    names = [quoted(column.name).decode() for column, _ in columns]
    groups = [names[first : first + _MASK_COLUMNS] for first in range(0, len(names), _MASK_COLUMNS)]
    return [
        " + ".join(f"({name} IS NULL) * {1 << place}" for place, name in enumerate(group))
        for group in groups
    ]


def _value(column: CatalogColumn, other: CatalogColumn, *, is_mixed: bool) -> _Value:
    name, base = quoted(column.name).decode(), column.base_type
    if (base, column.charset) == (other.base_type, other.charset):
        if base in _TEXTS | _BYTES and not is_ambiguous_set(column, other):
            return _Value(name, f"LENGTH({name})")
        if base in _LONG_TEXTS | _LONG_BYTES:
            value = f"CAST({name} AS BINARY)"
            short = f"IF(LENGTH({name}) <= {LONG_BYTES}, {value}, SHA2({value}, 224))"
            return _Value(short, f"LENGTH({name})")
        if base in _PLAIN and not ({"zerofill"} & {*_words(column), *_words(other)}):
            return _Value(name)
        if base == "float" and is_mixed:
            return _Value(_FLOAT.format(f"CAST({name} AS DOUBLE)"))
        if base == "double" and is_mixed:
            return _Value(_DOUBLE.format(name))
    return _Value(exact_column(column, other).sql)


def _words(column: CatalogColumn) -> list[str]:
    return column.type_text.split()
