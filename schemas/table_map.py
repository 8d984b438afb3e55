"""The body of a TABLE_MAP event as a ``TableSchema``: the structure of a table at the moment its rows were logged.

    offset  size      field                    (body = event without its 19-byte header and without the checksum)
         0     6      table id
         6     2      flags
         8     1      n; then n bytes database name, 1 byte 0
               1      n; then n bytes table name, 1 byte 0
            packed    column count c
               c      type codes, one byte each
            packed    m; then m bytes of metadata, 0, 1 or 2 for each column by its type
         (c+7)//8     may be NULL: bit i%8 of byte i//8 for column i
            rest      optional metadata (``schemas.table_map_metadata``)

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

Guarantees: every length is checked; wrong bytes are Fatal MR-6003, missing column names MR-6004, a type whose rows
can't be read MR-6005, an unknown collation MR-6006. Not done here: remembering tables by id.
"""

from schemas.byte_reader import ByteReader
from schemas.gtid_position import Flavour
from schemas.table import Column, TableSchema, TypeCode
from schemas.table_map_metadata import OptionalMetadata, RealType, unsupported

_COLUMNS_MAX = 4096  # of a table, in both servers

_TWO_BYTES = frozenset(
    {TypeCode.STRING, TypeCode.ENUM, TypeCode.SET, TypeCode.BIT, TypeCode.NEWDECIMAL}
)
_LENGTH_BYTES = {  # what the one byte of metadata may be
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
_MEASURED = frozenset(map(int, TypeCode))
_KNOWN = _MEASURED - {TypeCode.VAR_STRING}
_OLD_TEMPORAL = frozenset({TypeCode.TIMESTAMP, TypeCode.TIME, TypeCode.DATETIME})


def parse_table_map(body: bytes | memoryview, *, flavour: Flavour) -> tuple[int, TableSchema]:
    """The table id and the structure; errors as the module says."""
    reader = ByteReader(bytes(body), "table map")
    table_id = reader.uint(6)
    reader.uint(2)  # flags
    database, table = _name(reader), _name(reader)
    count = reader.packed()
    if not 0 < count <= _COLUMNS_MAX:
        reader.refuse(f"{count} columns")
    codes = reader.take(count)
    metadata = ByteReader(reader.take(reader.packed()), "metadata of a table map")
    real = tuple(_real_type(code, metadata, flavour) for code in codes)
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


def is_unmeasured(code: int, flavour: Flavour) -> bool:
    """Whether no table map tells what values of this type measure in a row.

    Nobody knows the type; or a fraction of it is in the rows alone, as of MariaDB's times before 10.1.
    """
    return code not in _MEASURED or (flavour is Flavour.MARIADB and code in _OLD_TEMPORAL)


def _name(reader: ByteReader) -> str:
    name = reader.take(reader.uint(1))
    if reader.uint(1) != 0:
        reader.refuse("no zero byte behind a name")
    try:
        return name.decode()
    except UnicodeDecodeError:
        reader.refuse(f"the name {name!r} is not UTF-8")


def _real_type(code: int, metadata: ByteReader, flavour: Flavour) -> RealType:
    if code not in _KNOWN:
        unsupported(f"type code {code}")
    type_code = TypeCode(code)
    if type_code in (TypeCode.VARCHAR, TypeCode.VARCHAR_COMPRESSED):
        return type_code, metadata.uint(2)
    if type_code in _TWO_BYTES:
        return _two_bytes(type_code, metadata)
    if type_code in _LENGTH_BYTES:
        parameter = metadata.uint(1)
        if parameter not in _LENGTH_BYTES[type_code]:
            metadata.refuse(f"{parameter} is no metadata of {type_code.name}")
        return type_code, parameter
    if type_code in _OLD_TEMPORAL and flavour is Flavour.MARIADB:
        # A fraction of these is in the rows but not in the table map: the row's length can't be known.
        unsupported(
            f"{type_code.name} in the format before MariaDB 10.1",
            fix="SET GLOBAL mysql56_temporal_format=ON, then ALTER TABLE … FORCE rewrites the table; or exclude it.",
        )
    return type_code, 0


def _two_bytes(code: TypeCode, metadata: ByteReader) -> RealType:
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
        unsupported(f"type code {first} inside {code.name}")
    return TypeCode.STRING, second | ((first & 0x30) ^ 0x30) << 4
