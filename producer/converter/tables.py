"""Tables as the kernel knows them: from a TABLE_MAP event's body to a column program, and the schemas of its records.

A structure is known by the bytes of its table map behind the table id: the same bytes under another id are the same slot. The
schemas are registered, and a ``schema`` record is due, before the first row of a run that uses them.
Not done here: deciding when (the kernel asks when it meets bytes it does not know).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from producer.converter.arrays import TABLE_IDS, TABLES_MAX, KernelArrays, Numbers
from producer.converter.charset_tables import CharsetTables
from producer.converter.filters import TableFilter
from producer.kernel import charsets
from producer.kernel import program as p
from producer.kernel.walk import find_table
from schemas.avro import SOURCE_VERSION, AvroSchema, column_branches, envelope_schema, key_schema
from schemas.control import Origin, RegisteredSchema, SchemaRecord
from schemas.gtid import Flavour
from schemas.table import Column, TableSchema, TypeCode
from schemas.table_map import parse_table_map

Register = Callable[[str, str], int]

_TABLE_ID_BYTES = 6
_FIXED = {
    TypeCode.FLOAT: (p.RAW, 4),
    TypeCode.DOUBLE: (p.RAW, 8),
    TypeCode.YEAR: (p.YEAR, 1),
    TypeCode.DATE: (p.DATE, 3),
    TypeCode.NEWDATE: (p.DATE, 3),
    TypeCode.TIME: (p.OLD_TIME, 3),
    TypeCode.DATETIME: (p.OLD_DATETIME, 8),
    TypeCode.TIMESTAMP: (p.OLD_TIMESTAMP, 4),
}
_INTEGERS = {
    TypeCode.TINY: (p.INT8, p.UINT8, 1),
    TypeCode.SHORT: (p.INT16, p.UINT16, 2),
    TypeCode.INT24: (p.INT24, p.UINT24, 3),
    TypeCode.LONG: (p.INT32, p.UINT32, 4),
    TypeCode.LONGLONG: (p.INT64, p.UINT64, 8),
}
_FRACTIONS = {
    TypeCode.TIME2: (p.TIME2, 3),
    TypeCode.DATETIME2: (p.DATETIME2, 5),
    TypeCode.TIMESTAMP2: (p.TIMESTAMP2, 4),
}
_HEX_GROUP = (0, 1, 1, 2, 2, 3, 3, 4, 4)


@dataclass(frozen=True, slots=True)
class Outlet:
    """Where the records go: the topic, its registry, which tables."""

    topic: str
    register: Register
    filter: TableFilter


class TableBook:
    """The kernel's tables. ``due`` collects the schema records that must stand before the next row."""

    def __init__(self, arrays: KernelArrays, *, origin: Origin, outlet: Outlet) -> None:
        self._arrays = arrays
        self._origin = origin
        self._outlet = outlet
        self._charsets = CharsetTables()
        self._slots: dict[bytes, int] = {}
        self._announced: set[int] = set()
        self.due: list[SchemaRecord] = []

    @property
    def codes(self) -> "np.ndarray[tuple[int], np.dtype[np.uint16]]":
        """The code points of all charsets in use."""
        return self._charsets.codes

    def learn(self, body: bytes, *, seq: int) -> None:
        """A table map that the kernel does not know; errors of ``parse_table_map`` and of the registry."""
        arrays = self._arrays
        structure = body[_TABLE_ID_BYTES:]
        slot = self._slots.get(structure)
        if slot is None:
            if arrays.table_count >= TABLES_MAX:
                arrays.forget_tables()
                self._slots.clear()
            slot = self._slots[structure] = self._add(body, seq)
        if arrays.id_count >= TABLE_IDS // 2:
            arrays.forget_ids()
        table_id = int.from_bytes(body[:_TABLE_ID_BYTES], "little")
        place = find_table(arrays.ids, table_id)
        if arrays.ids[place, 0] == 0:
            arrays.id_count += 1
        arrays.ids[place] = table_id + 1, slot

    def _add(self, body: bytes, seq: int) -> int:
        arrays = self._arrays
        database, table = _names(body)
        included = self._outlet.filter.admits(database, table)
        _, schema = parse_table_map(body, flavour=self._origin.connector)
        programs = _Program(schema, arrays, self._charsets)
        slot = arrays.add_table()
        row = np.zeros(p.TABLE_WIDTH, np.int64)
        row[p.FIRST_COLUMN] = arrays.add_columns(programs.columns)
        row[p.COLUMN_COUNT] = len(schema.columns)
        row[p.RESERVE_BYTES] = programs.reserve_bytes
        head = self._source_head(schema)
        row[p.HEAD_START], row[p.HEAD_SIZE] = arrays.add_blob(head), len(head)
        structure = body[_TABLE_ID_BYTES:]
        row[p.BODY_START], row[p.BODY_SIZE] = arrays.add_blob(structure), len(structure)
        row[p.SCHEMA_ID] = row[p.KEY_SCHEMA_ID] = -1
        row[p.IS_INCLUDED] = included
        row[p.MAPPED_IN] = -1
        if included:
            value, key = self._announce(schema, seq)
            row[p.SCHEMA_ID] = value.id
            if key is not None:
                row[p.KEY_SCHEMA_ID], row[p.KEY_COUNT] = key.id, len(schema.primary_key)
        arrays.tables[slot] = row
        return slot

    def _announce(
        self, table: TableSchema, seq: int
    ) -> tuple[RegisteredSchema, RegisteredSchema | None]:
        value = self.registered(envelope_schema(self._origin.set_name, table))
        of_key = key_schema(self._origin.set_name, table)
        key = self.registered(of_key) if of_key is not None else None
        if value.id not in self._announced:
            self._announced.add(value.id)
            self.due.append(SchemaRecord(value, key, table.database, table.table, seq))
        return value, key

    def registered(self, schema: AvroSchema) -> RegisteredSchema:
        """The schema with the id that the registry gives it."""
        subject = schema.subject(self._outlet.topic)
        return RegisteredSchema(subject, self._outlet.register(subject, schema.text), schema)

    def _source_head(self, table: TableSchema) -> bytes:
        """version, connector, name, snapshot, db, table, set: as Avro strings."""
        fields = (
            SOURCE_VERSION,
            self._origin.connector.value,
            self._origin.task,
            "false",
            table.database,
            table.table,
            self._origin.set_name,
        )
        return b"".join(_string(field) for field in fields)


class _Program:
    """``columns`` (kernel.program), ``reserve_bytes``; labels go to the arrays."""

    def __init__(self, schema: TableSchema, arrays: KernelArrays, tables: CharsetTables) -> None:
        self._arrays = arrays
        self._charsets = tables
        self.reserve_bytes = 64
        keys = {column: place for place, column in enumerate(schema.primary_key)}
        self.columns: Numbers = np.zeros((len(schema.columns), p.COLUMN_WIDTH), np.int64)
        for index, column in enumerate(schema.columns):
            row = self.columns[index]
            branches = column_branches(column)
            first = 1 if column.nullable else 0
            is_union = len(branches) > 1
            row[p.NULLABLE] = first
            row[p.BRANCH] = 2 * first if is_union else -1
            row[p.OTHER] = 2 * first + 2 if len(branches) - first > 1 else -1
            row[p.KEY] = keys.get(index, -1)
            self._fill(row, column)

    def _fill(self, row: Numbers, column: Column) -> None:
        type_ = column.type
        code = type_.code
        self.reserve_bytes += p.FIXED_VALUE_BYTES_MAX
        row[p.SIZE] = type_.length_prefix_bytes
        row[p.IS_PREFIXED] = type_.length_prefix_bytes > 0
        if code in _FIXED:
            row[p.OP], row[p.SIZE] = _FIXED[code]
        elif code in _INTEGERS:
            signed, unsigned, row[p.SIZE] = _INTEGERS[code]
            row[p.OP] = unsigned if type_.is_unsigned else signed
        elif code in _FRACTIONS:
            row[p.OP], size = _FRACTIONS[code]
            row[p.SIZE] = size + (type_.fraction_digits + 1) // 2
            row[p.A] = type_.fraction_digits
        elif code is TypeCode.NEWDECIMAL:
            row[p.OP] = p.DECIMAL
            row[p.A], row[p.B] = type_.precision, type_.scale
            row[p.SIZE] = sum(
                4 * (digits // 9) + _HEX_GROUP[digits % 9]
                for digits in (type_.precision - type_.scale, type_.scale)
            )
        elif code is TypeCode.BIT:
            row[p.OP], row[p.SIZE] = p.BIT, (type_.bit_count + 7) // 8
        elif code in (TypeCode.ENUM, TypeCode.SET):
            row[p.SIZE] = type_.parameter
            self._fill_labels(row, column)
        elif code is TypeCode.JSON:
            row[p.OP] = p.JSON
        elif type_.is_compressed:
            self._fill_compressed(row, column)
        elif type_.is_text:
            self._fill_text(row, column)
        elif code is TypeCode.STRING:
            row[p.OP], row[p.A] = p.BYTES_PADDED, type_.length_bytes_max
            self.reserve_bytes += type_.length_bytes_max
        else:
            row[p.OP] = p.BYTES

    def _fill_text(self, row: Numbers, column: Column) -> None:
        assert column.type.text is not None
        entry = self._charsets.entry(column.type.text.charset)
        if entry.kind in (charsets.ASCII, charsets.UTF8MB3, charsets.UTF8MB4):
            row[p.OP], row[p.A] = p.TEXT, entry.bytes_max
            return
        row[p.OP], row[p.A] = p.TEXT_CONVERTED, entry.kind
        row[p.B], row[p.C], row[p.D] = entry.first, entry.second, entry.has_ascii

    def _fill_compressed(self, row: Numbers, column: Column) -> None:
        # length_prefix_bytes is that of the declared type; the header byte counts in it
        row[p.OP], row[p.A] = p.COMPRESSED, -1
        if column.type.is_text:
            assert column.type.text is not None
            entry = self._charsets.entry(column.type.text.charset)
            row[p.A], row[p.B], row[p.C] = entry.kind, entry.first, entry.second
            row[p.D] = entry.bytes_max

    def _fill_labels(self, row: Numbers, column: Column) -> None:
        is_enum = column.type.code is TypeCode.ENUM
        row[p.OP] = p.ENUM if is_enum else p.SET
        row[p.A], row[p.B] = self._arrays.label_count, len(column.type.labels)
        branch = bytes([row[p.BRANCH]])
        longest = total = 0
        for label in column.type.labels:
            if label is None:
                self._arrays.add_label(0, -1)
                continue
            content = branch + _string(label) if is_enum else label.encode()
            start = self._arrays.add_blob(content)
            self._arrays.add_label(start, start + len(content))
            longest = max(longest, len(content))
            total += len(content) + 1
        # an empty label stands alone or is one of several: the text could not say which
        row[p.C] = not is_enum and "" not in column.type.labels
        self.reserve_bytes += longest if is_enum else total


def _names(body: bytes) -> tuple[str, str]:
    """Database and table of a table map, before anything else of it is looked at."""
    at = _TABLE_ID_BYTES + 2
    names = []
    for _ in range(2):
        length = body[at] if at < len(body) else 0
        names.append(body[at + 1 : at + 1 + length].decode("utf-8", "replace"))
        at += length + 2
    return names[0], names[1]


def _string(text: str) -> bytes:
    """An Avro string."""
    content = text.encode()
    rest = 2 * len(content)
    size = b""
    while rest >= 128:
        size += bytes([rest & 127 | 128])
        rest >>= 7
    return size + bytes([rest]) + content
