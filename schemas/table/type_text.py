"""A column's type as MySQL writes it, as far as the table map determines it.

Not in the text: labels and charset (separate properties), display width, whether a BINARY(16) of MariaDB is a UUID or
INET6. Lengths of text are in characters.
"""

from millrace.schemas.table.collation_ids import character_bytes_max
from millrace.schemas.table.structure import BINARY, ColumnType, TypeCode

_PLAIN = {
    TypeCode.TINY: "tinyint",
    TypeCode.SHORT: "smallint",
    TypeCode.INT24: "mediumint",
    TypeCode.LONG: "int",
    TypeCode.LONGLONG: "bigint",
    TypeCode.FLOAT: "float",
    TypeCode.DOUBLE: "double",
    TypeCode.YEAR: "year",
    TypeCode.DATE: "date",
    TypeCode.NEWDATE: "date",
    TypeCode.TIME: "time",
    TypeCode.DATETIME: "datetime",
    TypeCode.TIMESTAMP: "timestamp",
    TypeCode.JSON: "json",
    TypeCode.ENUM: "enum",
    TypeCode.SET: "set",
}
_FRACTIONAL = {
    TypeCode.TIME2: "time",
    TypeCode.DATETIME2: "datetime",
    TypeCode.TIMESTAMP2: "timestamp",
}
_GEOMETRIES = (
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geometrycollection",
)
_BLOB_SIZES = {1: "tiny", 2: "", 3: "medium", 4: "long"}


def type_text(column_type: ColumnType) -> str:
    """For example ``int unsigned``, ``decimal(10,2)``, ``varchar(40)``, ``mediumblob``, ``timestamp(6)``."""
    text = _base_text(column_type)
    if column_type.is_compressed:
        text += " compressed"
    return text + " unsigned" if column_type.is_unsigned and text != "year" else text


def length_characters(column_type: ColumnType) -> int:
    """The declared length of a CHAR, VARCHAR, BINARY or VARBINARY; 0 for other types."""
    length_bytes = column_type.length_bytes_max
    if column_type.code is TypeCode.VARCHAR_COMPRESSED:
        length_bytes -= 1  # the byte that names the compression
    return length_bytes // character_bytes_max(
        column_type.text.charset if column_type.text else BINARY
    )


def _base_text(column_type: ColumnType) -> str:
    code = column_type.code
    if code in _PLAIN:
        return _PLAIN[code]
    if code in _FRACTIONAL:
        digits = column_type.fraction_digits
        return _FRACTIONAL[code] + (f"({digits})" if digits else "")
    match code:
        case TypeCode.NEWDECIMAL:
            return f"decimal({column_type.precision},{column_type.scale})"
        case TypeCode.BIT:
            return f"bit({column_type.bit_count})"
        case TypeCode.VECTOR:
            return f"vector({column_type.extent})"
        case TypeCode.GEOMETRY:
            known = column_type.extent < len(_GEOMETRIES)
            return _GEOMETRIES[column_type.extent] if known else "geometry"
        case TypeCode.BLOB | TypeCode.BLOB_COMPRESSED:
            return _BLOB_SIZES[column_type.parameter] + ("text" if column_type.is_text else "blob")
        case TypeCode.STRING:
            name = "char" if column_type.is_text else "binary"
        case _:
            name = "varchar" if column_type.is_text else "varbinary"
    return f"{name}({length_characters(column_type)})"
