r"""How each column of a table is read on the source and written on the target, without loss.

The source returns bytes in each column's own character set, and LOAD DATA with the character set ``binary`` takes them
as they are. So most values are copied as bytes. The others:

    source            target              read as                                written as
    FLOAT (1)         any number          the same DOUBLE (4)                    its text
    BIT               another number      its number                             its text
    ENUM, SET         the same            its number on the target               its text, or by CAST (2)
    UUID, INET        the same, bytes     its bytes                              them
    text              another character   utf8mb4, and a byte that is none for   CONVERT(@v USING utf8mb4)
                      set                 characters that utf8mb4 can't return
    JSON, text        JSON of MySQL       utf8mb4                                CONVERT(@v USING utf8mb4) (3)
    utf8mb4, JSON     bytes               its bytes                              them
    number, date      text                its text                               as above, in another character set

(1) FLOAT alone prints six digits. DOUBLE with decimals prints no others.
(2) The server takes a text for a label first. So the number must not look like a label, and not be in UCS-2.
(3) ``consumer.tables.json_documents`` finds the texts that need an expression.
(4) The largest FLOAT(M,D) may be above its own limit, and is read as the limit.

All other pairs of types are Fatal MR-5082. Pure.
"""

import re
from dataclasses import dataclass
from enum import Enum, auto

from millrace.consumer.tables.table_plan import SPATIAL_TYPES
from millrace.drivers.mysql.catalog import CatalogColumn
from millrace.schemas.sql.quoting import charset_name, quoted
from millrace.schemas.view.view import Mask

_FLOATS = {"float", "double"}
_NUMBERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal"} | _FLOATS
_TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}
_BYTES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
_ADDRESSES = {"uuid": 16, "inet6": 16, "inet4": 4}  # bytes
_TIMES = {
    "date": {"date", "datetime", "timestamp"},
    "datetime": {"datetime", "timestamp"},
    "timestamp": {"datetime", "timestamp"},
    "time": {"time"},
}
_ALIASES = {"utf8": "utf8mb3"}
_WIDE = {"ucs2", "utf16", "utf16le", "utf32"}  # ASCII characters have several bytes
_LETTER = re.compile("[a-z]")
_NO_CHARACTERS = "x'FF'"  # not utf8mb4: the target's warning stops the copy
_NO_LABEL = (
    1 << 16,
    (1 << 64) - 1,
)  # no number of an ENUM, nor of a SET with less than 64 labels: the same
_SET_LABELS_MAX = 64


class Kind(Enum):
    """How INSERT writes a value: bytes, utf8mb4, JSON, or the number of labels."""

    PLAIN = auto()
    TEXT = auto()
    DOCUMENT = auto()
    ENUM = auto()
    SET = auto()


@dataclass(frozen=True, slots=True)
class CopyColumn:
    """``name`` is the target's; ``expression`` reads the value on the source.

    ``load``: the form for LOAD DATA, as in ``consumer.tables.load_data.load_sql``. ``refuses_null``: only the source
    may have NULL, for which the target would take another value. ``mask``: the expression reads the message of an
    HMAC, which the client computes (``consumer.copy.masked``).
    """

    name: str
    expression: str
    kind: Kind = Kind.PLAIN
    load: str = ""
    refuses_null: bool = False
    mask: Mask | None = None


def copy_column(
    source: CatalogColumn, target: CatalogColumn, operand: str = ""
) -> CopyColumn | None:
    """The way from a column to its column of the target; None if there is none without loss.

    ``operand``: what is read in the place of the column; it has the column's type.
    """
    found = _way(source, target, operand or quoted(source.name).decode())
    if found is None:
        return None
    expression, kind = found
    load = ""
    if kind in (Kind.TEXT, Kind.DOCUMENT):
        load = "CONVERT(%s USING utf8mb4)"
    elif kind in (Kind.ENUM, Kind.SET) and not _takes_numbers(target):
        load = "CAST(%s AS UNSIGNED)"
    refuses_null = source.nullable and not target.nullable
    return CopyColumn(target.name, expression, kind, load, refuses_null)


def _way(source: CatalogColumn, target: CatalogColumn, name: str) -> tuple[str, Kind] | None:
    base, wanted = source.base_type, target.base_type
    if wanted == "json":
        is_text = base == "json" or base in _TEXTS
        return (utf8mb4_of(source, name), Kind.DOCUMENT) if is_text else None
    if target.is_labelled:
        return _number_of(name, source, target) if base == wanted else None
    if base == "json" or base in _TEXTS or source.is_labelled:
        return _characters(source, target, name)
    if base in _ADDRESSES:
        raw = f"CAST({name} AS BINARY({_ADDRESSES[base]}))"
        return (raw, Kind.PLAIN) if wanted == base or wanted in _BYTES else None
    if base in _BYTES or base in SPATIAL_TYPES or base == "vector":
        is_alike = wanted in _BYTES or wanted in _ADDRESSES or wanted == base
        is_alike |= base in SPATIAL_TYPES and wanted in SPATIAL_TYPES
        return (name, Kind.PLAIN) if is_alike else None
    return _printed(source, target, name)


def _printed(source: CatalogColumn, target: CatalogColumn, name: str) -> tuple[str, Kind] | None:
    """Numbers and times, which the server prints in ASCII."""
    base, wanted = source.base_type, target.base_type
    if base == "float" or (base == "double" and "(" in source.type_text):
        name = f"CAST({name} AS DOUBLE)"
        if source.float_max and source.type_text == target.type_text:
            limit = f"{source.float_max:.17e}"
            name = f"LEAST(GREATEST({name}, -{limit}), {limit})"
    if base == "bit":
        if wanted == "bit":
            return name, Kind.PLAIN
        name = f"CAST({name} AS UNSIGNED)"
    is_number = base in _NUMBERS or base in ("bit", "year")
    if wanted == base == "year" or (is_number and wanted in _NUMBERS):
        return name, Kind.PLAIN
    if wanted in _TIMES.get(base, ()):
        return name, Kind.PLAIN
    if wanted in _TEXTS and (is_number or base in _TIMES):
        return name, Kind.TEXT if _charset(target) in _WIDE else Kind.PLAIN
    return None


def _characters(source: CatalogColumn, target: CatalogColumn, name: str) -> tuple[str, Kind] | None:
    wanted = target.base_type
    if wanted in _BYTES:
        return (name, Kind.PLAIN) if _charset(source) in ("utf8mb3", "utf8mb4") else None
    if wanted not in _TEXTS:
        return None
    charset = _charset(source)
    if charset == _charset(target) or (charset, _charset(target)) == ("utf8mb3", "utf8mb4"):
        return name, Kind.PLAIN
    return utf8mb4_of(source, name), Kind.TEXT


def _charset(column: CatalogColumn) -> str:
    """MySQL's JSON has none in the server's tables, and is utf8mb4."""
    return _ALIASES.get(column.charset, column.charset) or "utf8mb4"


def utf8mb4_of(column: CatalogColumn, name: str) -> str:
    """A text in utf8mb4, as bytes; a byte that is no text if it has none there."""
    charset = _charset(column)
    if charset in ("utf8mb3", "utf8mb4"):
        return name
    text = f"CONVERT({name} USING utf8mb4)"
    converted = f"CONVERT({text} USING {charset_name(charset)})"
    back = f"CAST({converted} AS BINARY) = CAST({name} AS BINARY)"
    return f"IF({name} IS NULL OR {back}, CAST({text} AS BINARY), {_NO_CHARACTERS})"


def _number_of(name: str, source: CatalogColumn, target: CatalogColumn) -> tuple[str, Kind] | None:
    """The number that the target has for the same label, or for the same set of labels."""
    number = f"CAST({name} AS UNSIGNED)"  # + 0 makes the 64th label of a SET negative
    kind = Kind[target.base_type.upper()]
    if source.type_text == target.type_text:
        return number, kind
    theirs = target.labels
    places = [theirs.index(label) if label in theirs else -1 for label in source.labels]
    if places == list(range(len(places))):
        return number, kind
    if kind is Kind.ENUM:
        numbers = ", ".join(str(place + 1 if place >= 0 else _NO_LABEL[0]) for place in places)
        return f"ELT({number} + 1, 0, {numbers})", kind
    unknown = sum(1 << bit for bit, place in enumerate(places) if place < 0)
    bits = " | ".join(
        f"IF({name} & {1 << bit}, {1 << place}, 0)"
        for bit, place in enumerate(places)
        if place >= 0
    )
    if unknown and len(theirs) == _SET_LABELS_MAX:
        return None
    mapped = f"IF({name} & {unknown}, {_NO_LABEL[1]}, {bits or 0})"
    return f"IF({name} IS NULL, NULL, {mapped})", kind


def _takes_numbers(column: CatalogColumn) -> bool:
    """Whether no number can be taken for a label: each label has a letter."""
    labels = (re.sub(r"\\.", "", label) for label in column.labels)
    return _charset(column) not in _WIDE and all(_LETTER.search(label) for label in labels)
