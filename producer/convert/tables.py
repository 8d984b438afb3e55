"""The kernel's tables: the column program and the record schemas of each TABLE_MAP event's body.

A structure is identified by the bytes of its table map after the table ID: the same bytes under another ID have the
same slot. Schemas are registered, and their ``schema`` record is due, before the first row of a run that uses them, and
before the next row after ``repeat_schemas``. With a new structure, those that follow it in the window are registered
too, because a registry stores many schemas as fast as one.
Not done here: deciding when. The kernel returns to Python at bytes that it does not know.

Which columns of partial row images are generated, and so are no loss.

MariaDB (seen with 11.8.9, not with 11.4.5 and 10.11.18) leaves generated columns out of both images of UPDATE and
DELETE under every ``binlog_row_image``, also the hidden hash columns of UNIQUE keys over long columns. Rows that an
UPDATE or a REPLACE inserts on the way (FOR PORTION OF, system versioning) may be without them too. A session with
another ``binlog_row_image`` leaves out other columns, so both must be distinguished (before images, tried on 11.8):

    FULL, FULL_NODUP    all but the generated columns
    MINIMAL             the primary key only, if there is one; else as FULL
    NOBLOB              all but the generated columns, and every BLOB or TEXT outside the primary key; without a primary
                        key as FULL

In a table without a primary key, a unique key over NOT NULL columns counts as one, also in the table map. The after
image of an UPDATE may be without other columns, so both images must be without the same ones. A generated column of
MariaDB is never NOT NULL and never in a primary key.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from millrace.errors import Fatal
from millrace.producer.binlog.transactions import OUTSIDE
from millrace.producer.convert.arrays import TABLES_MAX, KernelArrays, Numbers
from millrace.producer.convert.charset_tables import CharsetTables
from millrace.producer.convert.column_program import ColumnProgram, avro_string, column_sizes
from millrace.producer.convert.kernel import program as p
from millrace.producer.convert.kernel import state as s
from millrace.producer.convert.kernel.walk import find_table
from millrace.producer.convert.rows_head import INSERT
from millrace.producer.convert.table_filter import NameFilter
from millrace.schemas.gtid import Flavour
from millrace.schemas.record.avro_schema import (
    SOURCE_VERSION,
    AvroSchema,
    envelope_schema,
    key_schema,
)
from millrace.schemas.record.control import Origin, RegisteredSchema, SchemaRecord
from millrace.schemas.table.structure import TableSchema, TypeCode
from millrace.schemas.table.table_filter import SYSTEM_DATABASES
from millrace.schemas.table.table_map import parse_table_map

Register = Callable[[str, str], int]
Prepare = Callable[[Sequence[tuple[str, str]]], None]
Describe = Callable[[bytes, Flavour], TableSchema]

TABLES_AHEAD = 256  # structures that are looked at together; a stop of the task waits for them
_TABLE_ID_BYTES = 6


def describe_by_map(body: bytes, flavour: Flavour) -> TableSchema:
    """The structure that a table map has. Errors of ``parse_table_map``."""
    return parse_table_map(body, flavour=flavour)[1]


@dataclass(frozen=True, slots=True)
class Destination:
    """Where records go: the topic, its registry, and the table filter.

    ``prepare``: makes several schemas known to ``register`` at once. It raises nothing.
    ``describe``: the structure of a table map.
    """

    topic: str
    register: Register
    filter: NameFilter
    prepare: Prepare = lambda _: None
    describe: Describe = describe_by_map


@dataclass(frozen=True, slots=True)
class _Described:
    """An included table with its record schemas."""

    table: TableSchema
    value: AvroSchema
    key: AvroSchema | None


class KnownTables:
    """The kernel's tables. ``due`` collects the schema records that must precede the next row."""

    def __init__(self, arrays: KernelArrays, *, origin: Origin, destination: Destination) -> None:
        self._arrays = arrays
        self._origin = origin
        self._destination = destination
        self._charsets = CharsetTables()
        self._slots: dict[bytes, int] = {}
        self._variants: dict[tuple[int, tuple[bool, ...]], int] = {}  # by slot and present columns
        self._schemas: dict[int, SchemaRecord] = {}  # by slot
        self._announced: set[int] = set()
        self._ahead: dict[
            bytes, _Described | None
        ] = {}  # by structure; None: excluded or malformed
        self.due: list[SchemaRecord] = []
        self._has_included = False
        self._excluded = ""  # the first table that the filter excludes

    @property
    def only_excluded(self) -> str:
        """The first excluded table while no included one has been seen; "" otherwise."""
        return "" if self._has_included else self._excluded

    @property
    def codes(self) -> "np.ndarray[tuple[int], np.dtype[np.uint16]]":
        return self._charsets.codes

    def learn(self, body: bytes, *, seq: int, following: Iterable[bytes] = ()) -> None:
        """Add a table map that is new to the kernel. Raises errors of ``parse_table_map`` and of the registry.

        ``following``: the bodies of the table maps after it, read if its structure is new.
        """
        arrays = self._arrays
        structure = body[_TABLE_ID_BYTES:]
        slot = self._slots.get(structure)
        if slot is None:
            if arrays.table_count >= TABLES_MAX and not self._in_use():
                arrays.forget_tables()
                self._slots.clear()
                self._variants.clear()
                self._schemas.clear()
            self._look_ahead(body, following)
            slot = self._slots[structure] = self._add(body, seq)
        self._announce(slot, seq)
        if arrays.is_full_of_ids():
            arrays.forget_other_ids(self._in_use())
        table_id = int.from_bytes(body[:_TABLE_ID_BYTES], "little")
        place = find_table(arrays.ids, table_id)
        if arrays.ids[place, 0] == 0:
            arrays.id_count += 1
        arrays.ids[place] = table_id + 1, slot

    def learn_images(
        self, slot: int, operation: int, images: tuple[tuple[bool, ...], ...], *, seq: int
    ) -> None:
        """Add what the kernel needs for images without some columns. Fatal MR-6504 if these may not be generated.

        ``operation``, ``images``: of ``rows_head.read_present``.
        """
        arrays = self._arrays
        row = arrays.tables[slot]
        present = images[0]
        table = None
        if row[p.IS_INCLUDED]:
            start, size = int(row[p.BODY_START]), int(row[p.BODY_SIZE])
            body = bytes(_TABLE_ID_BYTES) + arrays.blob[start : start + size].tobytes()
            flavour = self._origin.connector
            whole = self._destination.describe(body, flavour)
            if operation == INSERT or not are_generated(whole, images, flavour):
                raise partial_images(whole, images)
            table = whole.without(present)
        elif any(image != present for image in images):
            raise Fatal("MR-6504", "row images without all columns")
        variant = self._variants.get((slot, present))
        if variant is None:
            variant = self._variants[slot, present] = self._add_variant(slot, table, present, seq)
        self._announce(variant, seq)
        arrays.tables[slot, p.VARIANT] = variant + 1

    def _add_variant(
        self, slot: int, table: TableSchema | None, present: Sequence[bool], seq: int
    ) -> int:
        arrays = self._arrays
        row = arrays.tables[slot].copy()
        schema: SchemaRecord | None = None
        if table is not None:
            name = self._origin.set_name
            described = _Described(table, envelope_schema(name, table), key_schema(name, table))
            schema = self._fill_included(row, described, seq)
        else:
            first, count = row[p.FIRST_COLUMN], row[p.COLUMN_COUNT]
            columns = arrays.columns[first : first + count][np.array(present, bool)]
            row[p.IS_UNMEASURED] = (columns[:, p.SIZE] < 0).any()
            row[p.FIRST_COLUMN], row[p.COLUMN_COUNT] = arrays.add_columns(columns), len(columns)
        bitmap = np.packbits(np.array(present, bool), bitorder="little").tobytes()
        row[p.BODY_START], row[p.BODY_SIZE] = arrays.add_blob(bitmap), len(bitmap)
        row[p.MAPPED_IN], row[p.VARIANT] = -1, 0
        variant = arrays.add_table()
        arrays.tables[variant] = row
        if schema is not None:
            self._schemas[variant] = schema
        return variant

    def _look_ahead(self, body: bytes, following: Iterable[bytes]) -> None:
        """Describe this structure and the next new ones, and prepare their schemas; nothing if it was described."""
        if body[_TABLE_ID_BYTES:] in self._ahead:
            return
        if len(self._ahead) > TABLES_AHEAD:  # the walk has not reached them
            self._ahead.clear()
        found: list[_Described] = []
        for other in (body, *islice(self._new_structures(body, following), TABLES_AHEAD - 1)):
            described = self._ahead[other[_TABLE_ID_BYTES:]] = self._try_describe(other)
            if described is not None:
                found.append(described)
        topic = self._destination.topic
        schemas = [
            schema for each in found for schema in (each.value, each.key) if schema is not None
        ]
        self._destination.prepare([(schema.subject(topic), schema.text) for schema in schemas])

    def _new_structures(self, body: bytes, following: Iterable[bytes]) -> Iterator[bytes]:
        seen = {body[_TABLE_ID_BYTES:]}
        for other in following:
            structure = other[_TABLE_ID_BYTES:]
            if not (structure in seen or structure in self._slots or structure in self._ahead):
                seen.add(structure)
                yield other

    def _try_describe(self, body: bytes) -> _Described | None:
        try:
            return (
                self._describe(body)
                if self._destination.filter.admits(*table_names(body))
                else None
            )
        except Fatal:  # raised again when the walk reaches it, if it does
            return None

    def _describe(self, body: bytes) -> _Described:
        table = self._destination.describe(body, self._origin.connector)
        name = self._origin.set_name
        return _Described(table, envelope_schema(name, table), key_schema(name, table))

    def slots_of(self, names: Collection[tuple[str, str]]) -> dict[int, int]:
        """The slots of these tables' structures, by the schema id of their records."""
        return {
            record.value.id: slot
            for slot, record in self._schemas.items()
            if (record.database, record.table) in names
        }

    def name_of(self, slot: int) -> tuple[str, str]:
        record = self._schemas[slot]
        return record.database, record.table

    @property
    def arrays(self) -> KernelArrays:
        return self._arrays

    def repeat_schemas(self, *, seq: int) -> None:
        """Repeat schema records: those of tables in use at once, all others at the table's next row."""
        in_use = self._in_use()
        self._arrays.forget_other_ids(in_use)
        self._announced.clear()
        self._arrays.tables[:, p.VARIANT] = 0
        for slot in in_use:
            self._announce(slot, seq)

    def _in_use(self) -> list[int]:
        """Slots that the open source transaction has mapped: more of their rows may follow."""
        arrays, st = self._arrays, self._arrays.state
        if st[s.GROUP] == OUTSIDE:
            return []
        mapped = arrays.tables[: arrays.table_count, p.MAPPED_IN] == st[s.TRANSACTIONS]
        found: list[int] = np.flatnonzero(mapped).tolist()
        return found

    def _announce(self, slot: int, seq: int) -> None:
        record = self._schemas.get(slot)
        if record is not None and record.value.id not in self._announced:
            self._announced.add(record.value.id)
            self.due.append(replace(record, seq=seq))

    def _add(self, body: bytes, seq: int) -> int:
        arrays = self._arrays
        database, table = table_names(body)
        row = np.zeros(p.TABLE_WIDTH, np.int64)
        row[p.SCHEMA_ID] = row[p.KEY_SCHEMA_ID] = row[p.MAPPED_IN] = -1
        schema: SchemaRecord | None = None
        described = self._ahead.pop(body[_TABLE_ID_BYTES:], None)
        if self._destination.filter.admits(database, table):
            schema = self._fill_included(row, described or self._describe(body), seq)
            self._has_included = True
        else:
            is_ours = self._destination.filter.hides(database, table)
            if database.lower() not in SYSTEM_DATABASES and not is_ours:
                self._excluded = self._excluded or f"{database}.{table}"
            columns = column_sizes(body, flavour=self._origin.connector)
            row[p.IS_UNMEASURED] = (columns[:, p.SIZE] < 0).any()
            row[p.FIRST_COLUMN], row[p.COLUMN_COUNT] = arrays.add_columns(columns), len(columns)
        structure = body[_TABLE_ID_BYTES:]
        row[p.BODY_START], row[p.BODY_SIZE] = arrays.add_blob(structure), len(structure)
        slot = arrays.add_table()
        arrays.tables[slot] = row
        if schema is not None:
            self._schemas[slot] = schema
        return slot

    def _fill_included(self, row: Numbers, described: _Described, seq: int) -> SchemaRecord:
        arrays, schema = self._arrays, described.table
        program = ColumnProgram(schema, arrays, self._charsets)
        row[p.FIRST_COLUMN] = arrays.add_columns(program.columns)
        row[p.COLUMN_COUNT] = len(schema.columns)
        row[p.RESERVE_BYTES] = program.reserve_bytes
        head = source_head(self._origin, schema)
        row[p.HEAD_START], row[p.HEAD_SIZE] = arrays.add_blob(head), len(head)
        row[p.IS_INCLUDED] = 1
        value = self.register_schema(described.value)
        key = self.register_schema(described.key) if described.key is not None else None
        row[p.SCHEMA_ID] = value.id
        if key is not None:
            row[p.KEY_SCHEMA_ID], row[p.KEY_COUNT] = key.id, len(schema.primary_key)
        return SchemaRecord(value, key, schema.database, schema.table, seq)

    def register_schema(self, schema: AvroSchema) -> RegisteredSchema:
        subject = schema.subject(self._destination.topic)
        return RegisteredSchema(subject, self._destination.register(subject, schema.text), schema)


def source_head(origin: Origin, table: TableSchema, *, is_snapshot: bool = False) -> bytes:
    """The fields version, connector, name, snapshot, db, table, set as Avro strings."""
    fields = (
        SOURCE_VERSION,
        origin.connector.value,
        origin.task,
        "true" if is_snapshot else "false",
        table.database,
        table.table,
        origin.set_name,
    )
    return b"".join(avro_string(field) for field in fields)


def table_names(body: bytes) -> tuple[str, str]:
    """Database and table of a table map; the rest of it is not read."""
    at = _TABLE_ID_BYTES + 2
    names = []
    for _ in range(2):
        length = body[at] if at < len(body) else 0
        names.append(body[at + 1 : at + 1 + length].decode("utf-8", "replace"))
        at += length + 2
    return names[0], names[1]


_LEFT_OUT = frozenset({TypeCode.BLOB, TypeCode.BLOB_COMPRESSED, TypeCode.JSON, TypeCode.GEOMETRY})
_LEFT_OUT_ALWAYS = TypeCode.BLOB  # by NOBLOB, outside the primary key


def partial_images(table: TableSchema, images: Sequence[Sequence[bool]]) -> Fatal:
    """MR-6504 with the columns that at least one image is without."""
    in_all = map(all, zip(*images, strict=True))
    names = [c.name for c, is_there in zip(table.columns, in_all, strict=True) if not is_there]
    what = f"row images of {table.full_name} without all columns: {', '.join(names)} missing"
    return Fatal("MR-6504", what, table=table.full_name)


def are_generated(table: TableSchema, images: Sequence[Sequence[bool]], flavour: Flavour) -> bool:
    """Whether the columns that the images of an UPDATE or DELETE are without must be generated ones."""
    present = images[0]
    if flavour is not Flavour.MARIADB or any(image != present for image in images):
        return False
    key = set(table.primary_key)
    there = {index for index, is_there in enumerate(present) if is_there}
    absent = set(range(len(table.columns))) - there
    if not key <= there or not all(table.columns[index].nullable for index in absent):
        return False
    return not key or not (there == key or _may_be_noblob(table, there - key, absent))


def _may_be_noblob(table: TableSchema, there: set[int], absent: set[int]) -> bool:
    codes = [column.type.code for column in table.columns]
    if not any(codes[index] in _LEFT_OUT for index in absent):
        return False
    return not any(codes[index] is _LEFT_OUT_ALWAYS for index in there)
