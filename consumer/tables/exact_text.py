"""Columns of a table as text without loss, for comparison, and single values of it as SQL literals, for people.

    type                    text                                     literal
    number, YEAR            as the server prints it                  5
    date, time              as the server prints it                  '2026-01-01'
    characters, SET         hex digits of its bytes (1)              '日本'
    ENUM                    its number, a colon, and as above        'new'
    SET with a label ''     1 for no label or else 0, a colon, …     'a,b'
    UUID, INET4, INET6      hex digits                               '10.0.0.1'
    bytes                   hex digits                               x'00ff'
    long type, at choice    a digest of its bytes                    (digest 1a2b…)
                            length, digest, and the hex digits       '日本' … (70000 bytes, digest 1a2b…)
                            of its beginning

(1) in the column's character set, or in utf8mb4 if the other side has another one. A server converts them back.

A literal is as in the key of MR-5010, except for bytes. NULL is None as text. No label, and the label '' of a SET, are
the numbers 0 and 1, because both print an empty text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from ipaddress import ip_address
from uuid import UUID

from millrace.consumer.tables.table_plan import SPATIAL_TYPES
from millrace.drivers.mysql.catalog import CatalogColumn, CatalogTable
from millrace.drivers.mysql.chunks.key import whole_number
from millrace.drivers.mysql.connection import MySqlSession, Row
from millrace.schemas.sql.quoting import charset_name, escaped, hex_bytes, quoted

DIGEST_SHOWN = 12  # hex digits
BEGINNING = 40  # characters, of binary values bytes

_BYTES = SPATIAL_TYPES | {
    "vector",
    "binary",
    "varbinary",
    "tinyblob",
    "blob",
    "mediumblob",
    "longblob",
}
_LONG = _BYTES - {"binary", "varbinary"} | {"text", "mediumtext", "longtext", "json"}
_ADDRESSES = {"inet4", "inet6"}
_NUMBERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "double", "year"}


class Long(Enum):
    """How a value of a long type is read."""

    WHOLE = auto()
    DIGEST = auto()
    BEGINNING = auto()


class Form(Enum):
    """How a literal is made of the text."""

    NUMBER = auto()
    QUOTED = auto()
    TEXT = auto()
    ENUM = auto()
    SET = auto()
    UUID = auto()
    ADDRESS = auto()
    BYTES = auto()
    DIGEST = auto()


@dataclass(frozen=True, slots=True)
class Exact:
    """A column. ``sql`` returns its text. ``charset``: that of the bytes in TEXT, ENUM and SET.

    ``is_beginning``: of a long value; its length and digest come before the text.
    """

    sql: str
    form: Form
    charset: str = ""
    is_beginning: bool = False


def exact_columns(
    table: CatalogTable, names: Sequence[str], other: CatalogTable, *, long: Long = Long.WHOLE
) -> list[Exact]:
    """These columns of ``table``, for comparison with ``other``."""
    return [exact_column(table.columns[name], other.columns[name], long=long) for name in names]


def exact_column(column: CatalogColumn, other: CatalogColumn, *, long: Long = Long.DIGEST) -> Exact:
    """A column, for comparison with ``other``."""
    if long is Long.WHOLE or column.base_type not in _LONG:
        return _whole(column, other)
    name, base = quoted(column.name).decode(), column.base_type
    is_text = base == "json" or bool(column.charset)
    is_equal = (base, column.charset) == (other.base_type, other.charset)
    value = f"CONVERT({name} USING utf8mb4)" if is_text and not is_equal else name
    digest = f"SHA2(CAST({value} AS BINARY), 224)"
    if long is Long.DIGEST:
        return Exact(digest, Form.DIGEST)
    form, charset = (Form.TEXT, column.charset) if is_text else (Form.BYTES, "")
    if base == "json" or (is_text and not is_equal):
        value, charset = f"CONVERT({name} USING utf8mb4)", "utf8mb4"
    elif not is_text:
        value = f"CAST({name} AS BINARY)"
    begin = f"CONCAT(LENGTH({value}), ':', {digest}, ':', HEX(LEFT({value}, {BEGINNING})))"
    return Exact(begin, form, charset, is_beginning=True)


def is_long(column: CatalogColumn) -> bool:
    """Whether it has a long type."""
    return column.base_type in _LONG


def is_ambiguous_set(column: CatalogColumn, other: CatalogColumn) -> bool:
    """Whether both are a SET, and in one of them the label '' has the text of no label."""
    both = column, other
    return all(one.base_type == "set" for one in both) and any(
        "''" in one.type_text for one in both
    )


def _whole(column: CatalogColumn, other: CatalogColumn) -> Exact:
    name, base = quoted(column.name).decode(), column.base_type
    utf8 = f"CONVERT({name} USING utf8mb4)"
    if base in _BYTES:
        return Exact(f"HEX({name})", Form.BYTES)
    if base == "uuid":
        return Exact(f"HEX({name})", Form.UUID)
    if base in _ADDRESSES:
        return Exact(f"HEX({name})", Form.ADDRESS)
    if base == "float":
        return Exact(f"CAST({name} AS DOUBLE)", Form.NUMBER)  # FLOAT alone prints six digits
    if base == "bit":
        return Exact(whole_number(name), Form.NUMBER)
    if base == "enum":
        return Exact(f"CONCAT({whole_number(name)}, ':', HEX({name}))", Form.ENUM, column.charset)
    if is_ambiguous_set(column, other):
        value = name if column.charset == other.charset else utf8
        charset = column.charset if value is name else "utf8mb4"
        return Exact(f"CONCAT({whole_number(name)} = 0, ':', HEX({value}))", Form.SET, charset)
    if base == "json" or other.base_type == "json":
        return Exact(f"HEX({utf8})", Form.TEXT, "utf8mb4")
    if column.charset and column.charset == other.charset:
        return Exact(f"HEX({name})", Form.TEXT, column.charset)
    if column.charset:
        return Exact(f"HEX({utf8})", Form.TEXT, "utf8mb4")
    return Exact(f"CAST({name} AS CHAR)", Form.NUMBER if base in _NUMBERS else Form.QUOTED)


def literals(session: MySqlSession, columns: Sequence[Exact], row: Row) -> list[str]:
    """A row's texts as literals; ``columns`` are those of the row. The server converts characters."""
    texts = [None if value is None else _str(value) for value in row]
    places = [
        number
        for number, column in enumerate(columns)
        if column.charset and texts[number] is not None
    ]
    each = (
        f"HEX(CONVERT(CAST({hex_bytes(_digits(texts[number]))} AS CHAR CHARACTER SET"
        f" {charset_name(columns[number].charset)})"
        " USING utf8mb4))"
        for number in places
    )
    characters: dict[int, str] = {}
    if places:
        (found,) = session.query(f"SELECT {', '.join(each)}")
        read = ((n, _decoded(value)) for n, value in zip(places, found, strict=True))
        characters = {number: value for number, value in read if value is not None}
    return [
        _literal(column, text, characters.get(number))
        for number, (column, text) in enumerate(zip(columns, texts, strict=True))
    ]


def _decoded(digits: object) -> str | None:
    """The characters of bytes in utf8mb4; None if a server has stored bytes that are none, such as surrogates."""
    try:
        return None if digits is None else bytes.fromhex(_str(digits)).decode()
    except UnicodeDecodeError:
        return None


def _digits(text: str | None) -> str:
    """The hex digits of a TEXT, those after the number of an ENUM, or those of a beginning."""
    return (text or "").rpartition(":")[2]


def _literal(column: Exact, text: str | None, characters: str | None) -> str:
    if text is None:
        return "NULL"
    if column.is_beginning:
        length, digest, digits = text.split(":")
        begin = _literal(replace(column, is_beginning=False), digits, characters)
        if 2 * int(length) == len(digits):
            return begin
        return f"{begin} … ({length} bytes, digest {digest[:DIGEST_SHOWN]})"
    match column.form:
        case Form.NUMBER:
            return text
        case Form.QUOTED:
            return _quoted(text)
        case Form.ENUM if text.startswith("0:"):
            return "0"
        case Form.SET if not _digits(text):
            return "0" if text.startswith("1:") else "1"
        case Form.TEXT | Form.ENUM | Form.SET:
            # a server may have no characters for bytes that it has stored
            return f"x'{_digits(text).lower()}'" if characters is None else _quoted(characters)
        case Form.UUID:
            return _quoted(str(UUID(hex=text)))
        case Form.ADDRESS:
            return _quoted(str(ip_address(bytes.fromhex(text))))
        case Form.BYTES:
            return f"x'{text.lower()}'"
        case Form.DIGEST:
            return f"(digest {text[:DIGEST_SHOWN]})"


def _quoted(text: str) -> str:
    return f"'{escaped(text.encode()).decode()}'"


def _str(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
