"""Parses the body of a TABLE_MAP event to a ``TableSchema``: the structure of a table when its rows were logged.

    offset  size      field                    (body = event without its 19-byte header and without the checksum)
         0     6      table id
         6     2      flags
         8     1      n; then n bytes database name, 1 byte 0
               1      n; then n bytes table name, 1 byte 0
            packed    column count c
               c      type codes, 1 byte each
            packed    m; then m bytes of metadata, 0, 1 or 2 for each column by its type
         (c+7)//8     may be NULL: bit i%8 of byte i//8 for column i
            rest      optional metadata (``schemas.table.metadata``)

    metadata                                   ``ColumnType.parameter``
    VARCHAR               2   length           the same, in bytes
    STRING                2   type, length     length; its bits 8 and 9 are bits 4 and 5 of the type, inverted
    STRING that is ENUM, SET  2   real type, n     n bytes of the value
    BIT                   2   bits%8, bits//8  bits
    NEWDECIMAL            2   precision, scale precision << 8 | scale
    BLOB, JSON, GEOMETRY, VECTOR  1  n         n bytes of the length
    FLOAT, DOUBLE         1   4, 8             the same
    TIME2, DATETIME2, TIMESTAMP2  1  digits    the same
    others                0                    0

Sources: mysql-server ``libs/mysql/binlog/event/rows_event.h`` and ``sql/field.cc`` (save_field_metadata), MariaDB
``sql/log_event_server.cc``.

Guarantees: every length is checked. Invalid bytes raise Fatal MR-6003, missing column names MR-6004, a type whose rows
can't be read MR-6005, an unknown collation MR-6006. Not done here: caching tables by id.
"""

from millrace.schemas.byte_reader import ByteReader
from millrace.schemas.gtid.position import Flavour
from millrace.schemas.table.metadata import OptionalMetadata, RealType, unsupported
from millrace.schemas.table.structure import Column, TableSchema, TypeCode

_COLUMNS_MAX = 4096  # per table, in both servers

_VARIABLE = frozenset({TypeCode.VARCHAR, TypeCode.VARCHAR_COMPRESSED, TypeCode.VAR_STRING})
_TWO_BYTES = frozenset(
    {TypeCode.STRING, TypeCode.ENUM, TypeCode.SET, TypeCode.BIT, TypeCode.NEWDECIMAL}
)
_LENGTH_BYTES = {  # valid values of the one metadata byte
    TypeCode.BLOB: (1, 2, 3, 4),
    TypeCode.BLOB_COMPRESSED: (1, 2, 3, 4),
    TypeCode.GEOMETRY: (1, 2, 3, 4),
    TypeCode.JSON: (1, 2, 3, 4),
    TypeCode.VECTOR: (1, 2, 3, 4),
    TypeCode.FLOAT: (4,),
    TypeCode.DOUBLE: (8,),
    TypeCode.TIME2: (0, 1, 2, 3, 4, 5, 6),
    TypeCode.DATETIME2: (0, 1, 2, 3, 4, 5, 6),
    TypeCode.TIMESTAMP2: (0, 1, 2, 3, 4, 5, 6),
}
_PACK_LENGTHS = {TypeCode.ENUM: (1, 2), TypeCode.SET: (1, 2, 3, 4, 8)}
_WITH_LENGTH = frozenset(map(int, TypeCode))
_KNOWN = _WITH_LENGTH - {TypeCode.VAR_STRING}
_OLD_TEMPORAL = frozenset({TypeCode.TIMESTAMP, TypeCode.TIME, TypeCode.DATETIME})


def parse_table_map(body: bytes | memoryview, *, flavour: Flavour) -> tuple[int, TableSchema]:
    """The table id and the structure; the module's docstring lists the errors."""
    reader = ByteReader(bytes(body), "table map")
    table_id = reader.uint(6)
    reader.uint(2)  # flags
    database, table = _name(reader), _name(reader)
    count = reader.packed()
    if not 0 < count <= _COLUMNS_MAX:
        reader.refuse(f"{count} columns")
    codes = reader.take(count)
    metadata = ByteReader(reader.take(reader.packed()), "metadata of a table map")
    real = tuple(_readable_type(code, metadata, flavour) for code in codes)
    metadata.end()
    nulls = reader.take((count + 7) // 8)
    rest = OptionalMetadata.read(reader, real=real, flavour=flavour, table=f"{database}.{table}")
    columns = tuple(
        Column(name, type_, bool(nulls[index // 8] >> index % 8 & 1), is_visible)
        for index, (name, type_, is_visible) in enumerate(
            zip(rest.names(), rest.types(), rest.visibility(), strict=True)
        )
    )
    key = rest.primary_key()
    return table_id, TableSchema(
        database,
        table,
        columns,
        tuple(index for index, _ in key),
        tuple(prefix for _, prefix in key),
    )


def read_real_types(body: bytes | memoryview, *, flavour: Flavour) -> tuple[int, list[RealType]]:
    """The number of columns, and the types of those before the first whose values have an unknown length.

    That is an unknown type, or one whose fraction only the rows contain, as in MariaDB's temporal types before 10.1.
    Fatal MR-6003 for a damaged body.
    """
    reader = ByteReader(bytes(body), "table map")
    reader.take(8)
    for _ in range(2):
        reader.take(reader.uint(1) + 1)
    codes = reader.take(reader.packed())
    metadata = ByteReader(reader.take(reader.packed()), "metadata of a table map")
    found: list[RealType] = []
    for code in codes:
        if code not in _WITH_LENGTH or (flavour is Flavour.MARIADB and code in _OLD_TEMPORAL):
            break
        real = _real_type(TypeCode(code), metadata)
        if real is None:
            break
        found.append(real)
    return len(codes), found


def _name(reader: ByteReader) -> str:
    name = reader.take(reader.uint(1))
    if reader.uint(1) != 0:
        reader.refuse("no zero byte after a name")
    try:
        return name.decode()
    except UnicodeDecodeError:
        reader.refuse(f"the name {name!r} is not UTF-8")


def _readable_type(code: int, metadata: ByteReader, flavour: Flavour) -> RealType:
    if code not in _KNOWN:
        unsupported(f"type code {code}")
    type_code = TypeCode(code)
    if type_code in _OLD_TEMPORAL and flavour is Flavour.MARIADB:
        # Rows contain a fraction that the table map does not mention, so the row's length is unknown.
        unsupported(
            f"{type_code.name} in the format before MariaDB 10.1",
            fix="SET GLOBAL mysql56_temporal_format=ON and rewrite the table with ALTER TABLE … FORCE; or exclude it.",
        )
    real = _real_type(type_code, metadata)
    if real is None:
        unsupported(f"an unknown type code inside {type_code.name}")
    return real


def _real_type(code: TypeCode, metadata: ByteReader) -> RealType | None:
    """The type and its parameter; None for an unknown type inside a STRING."""
    if code in _VARIABLE:
        return code, metadata.uint(2)
    if code in _TWO_BYTES:
        return _two_bytes(code, metadata)
    if code in _LENGTH_BYTES:
        parameter = metadata.uint(1)
        if parameter not in _LENGTH_BYTES[code]:
            metadata.refuse(f"{parameter} is not valid metadata of {code.name}")
        return code, parameter
    return code, 0


def _two_bytes(code: TypeCode, metadata: ByteReader) -> RealType | None:
    first, second = metadata.take(2)
    if code is TypeCode.NEWDECIMAL:
        if not (0 < first <= 65 and second <= min(first, 38)):
            metadata.refuse(f"DECIMAL({first},{second})")
        return code, first << 8 | second
    if code is TypeCode.BIT:
        bits = first + second * 8
        if not (first < 8 and 0 < bits <= 64):
            metadata.refuse(f"BIT({bits})")
        return code, bits
    if first in _PACK_LENGTHS:
        real = TypeCode(first)
        if second not in _PACK_LENGTHS[real]:
            metadata.refuse(f"{real.name} of {second} bytes")
        return real, second
    if first | 0x30 != TypeCode.STRING:
        return None
    return TypeCode.STRING, second | ((first & 0x30) ^ 0x30) << 4
