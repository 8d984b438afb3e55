"""Damages records of a topic and reads them as apply does. Any outcome other than rows or a coded error is a defect.

    python -m tests.kit.fuzz.record SEED ROUNDS

With MILLRACE_KERNEL_CHECKED=1 an access beyond an array is an error. With NUMBA_DISABLE_JIT=1 the same code runs as
plain Python, where an index below zero is an error too. Without either it refuses to run. Prints how many records were
read and the codes of the errors.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from millrace.compiled import IS_INTERPRETED
from millrace.consumer.kernel import walk
from millrace.consumer.kernel.compiled import CHECKED
from millrace.consumer.kernel.walk import SLOT
from millrace.consumer.records.numbers import NO_SEQS, RecordNumbers
from millrace.consumer.records.row_schemas import RowSchemas
from millrace.consumer.records.rows import Values
from millrace.consumer.tables.causality_keys import find_keys
from millrace.consumer.tables.merge_rules import net_changes
from millrace.consumer.tables.table_plans import Catalogue, TablePlans
from millrace.consumer.target.progress import Mark
from millrace.consumer.window.window import read_window
from millrace.drivers.mysql.catalog import CatalogColumn, CatalogTable, Inventory, UniqueKey
from millrace.errors import Fatal, MillraceError
from millrace.schemas.record.record import KnownSchemas, decode_record
from millrace.schemas.table.structure import Column, ColumnType, TextEncoding, TypeCode
from tests.kit.apply.tables import UTF8, integer, table, text
from tests.kit.apply.topic import RecordStream
from tests.kit.apply.values import values_of

SIMPLE = table("d", "simple", integer("id"), text("mail"))
EVERYTHING = table(
    "d",
    "everything",
    integer("id"),
    Column("big", ColumnType(TypeCode.LONGLONG, is_unsigned=True), True),
    Column("money", ColumnType(TypeCode.NEWDECIMAL, 65 << 8 | 30), True),
    Column("small", ColumnType(TypeCode.NEWDECIMAL, 5 << 8 | 2), False),
    Column("ratio", ColumnType(TypeCode.FLOAT, 4), True),
    Column("exact", ColumnType(TypeCode.DOUBLE, 8), False),
    Column("flags", ColumnType(TypeCode.BIT, 64), True),
    Column("raw", ColumnType(TypeCode.BLOB, 2, text=TextEncoding("binary", 63)), True),
    Column("word", ColumnType(TypeCode.ENUM, labels=("a", "b"), text=UTF8), True),
    Column("words", ColumnType(TypeCode.SET, labels=("a", "b"), text=UTF8), True),
    Column("tree", ColumnType(TypeCode.JSON, 4), True),
    Column("day", ColumnType(TypeCode.DATE), True),
    text("note", 100),
)
TABLES = (SIMPLE, EVERYTHING)


def row(number: int) -> dict[str, object]:
    """Values of every kind."""
    return {
        "id": number,
        "mail": f"a{number}@b",
        "big": Decimal(2**64 - number),
        "money": Decimal(10**35 - number).scaleb(-30),
        "small": Decimal(number).scaleb(-2),
        "ratio": number / 3,
        "exact": -number / 7,
        "flags": b"\xff" * 8,
        "raw": bytes(range(number % 64)),
        "word": "a",
        "words": "a,b",
        "tree": '{"a": [1, 2]}',
        "day": "2001-02-03",
        "note": "it's\\ n\0t " * (number % 5),
    }


def good_records() -> list[bytes]:
    """Schemas, inserts, updates, deletes, a statement, resolved records."""
    stream = RecordStream()
    for number in range(1, 6):
        for made in TABLES:
            wanted = {column.name for column in made.columns}
            before = {name: value for name, value in row(number).items() if name in wanted}
            after = {name: value for name, value in row(number + 9).items() if name in wanted}
            stream.insert(made, before)
            stream.update(made, before, after)
            stream.delete(made, after)
        stream.commit()
        if number == 3:
            stream.ddl("ALTER TABLE simple ADD v INT", database="d")
    return stream.values


def inventory() -> Inventory:
    """The inventory of a target with the tables."""
    return Inventory(
        tables={
            (made.database, made.table): CatalogTable(
                made.database,
                made.table,
                {
                    c.name: CatalogColumn(c.name, "int", "int", "", "", True, False)
                    for c in made.columns
                },
                (
                    UniqueKey("PRIMARY", ("id",), True),
                    UniqueKey("other", (made.columns[1].name,), True),
                ),
            )
            for made in TABLES
        }
    )


class _Guarded(np.ndarray[Any, Any]):
    """Bytes that refuse an index below zero, which numpy counts from the end."""

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, int | np.integer) and key < 0:
            raise IndexError(f"a read at {key}")
        return super().__getitem__(key)


def read(values: Sequence[bytes]) -> Counter[str]:
    """Read as an executor does: walk, keys, literals. Counts rows; MillraceError for unreadable records."""
    plans = TablePlans(Catalogue("fuzz", RowSchemas(), inventory()))
    offsets, given = np.arange(len(values)), values_of(values)
    if IS_INTERPRETED:
        given = Values(given.payload.view(_Guarded), given.offsets)
    window = read_window(
        given, offsets, plans=plans, seen=Mark(0, 0), applied=NO_SEQS, look_up=_nothing
    )
    rows, plans = window.rows, window.plans
    numbers = RecordNumbers(np.flatnonzero(rows.column(SLOT) >= 0))
    slots = sorted({int(slot) for slot in rows.column(SLOT)[numbers]})
    find_keys(rows, plans.key_programs(slots), numbers)
    net_changes(rows, numbers, plans.merge_rules(slots))
    for slot in slots:
        table_plan = plans.table_plan(slot)
        for op, pieces in (
            (99, table_plan.insert),
            (117, table_plan.update),
            (100, table_plan.delete),
        ):
            mine = numbers[
                (rows.column(SLOT)[numbers] == slot) & (rows.column(walk.OP)[numbers] == op)
            ]
            if pieces is not None and len(mine):
                width = len(table_plan.layout.branches)
                rows.inexact(mine, tuple(range(width)), width=width, marks=2)
                rows.text_of(rows.firsts(mine), pieces.shape, pieces.around)
    for number in numbers:
        rows.gtid(int(number))
    return Counter(rows=len(numbers))


def _nothing(schema_id: int) -> str:
    raise Fatal("MR-5033", f"no schema of id {schema_id}", schema_id=schema_id)


def explained(values: Sequence[bytes]) -> Counter[str]:
    """Read as ``topic tail`` does, with the reference decoder."""
    known = KnownSchemas()
    for value in values:
        decode_record(None, value, known)
    return Counter(decoded=len(values))


def _flip(value: bytearray, chance: random.Random) -> None:
    place = chance.randrange(len(value))
    value[place] = chance.choice((0, 1, 2, 127, 128, 255, value[place] ^ 1 << chance.randint(0, 7)))


def _cut(value: bytearray, chance: random.Random) -> None:
    del value[chance.randrange(len(value)) :]


def _insert(value: bytearray, chance: random.Random) -> None:
    place = chance.randint(0, len(value))
    value[place:place] = chance.choice(
        (
            b"\xff" * 9 + b"\x01",  # a varint of -2**63
            b"\xfe" * 9 + b"\x01",
            b"\xff" * 12,  # and one that never ends
            b"\xfe\xff\xff\xff\x0f",  # 2 GiB
            bytes(chance.randint(1, 300)),
        )
    )


def _remove(value: bytearray, chance: random.Random) -> None:
    place = chance.randrange(len(value))
    del value[place : place + chance.randint(1, 9)]


def _magic(value: bytearray, chance: random.Random) -> None:
    value[chance.randint(0, min(5, len(value) - 1))] = chance.randint(0, 255)


DAMAGE: tuple[Callable[[bytearray, random.Random], None], ...] = (
    _flip,
    _flip,
    _cut,
    _insert,
    _remove,
    _magic,
)


def damaged(values: Sequence[bytes], chance: random.Random) -> list[bytes]:
    """One to three records damaged; sometimes one is missing, or two are swapped."""
    made = [bytearray(value) for value in values]
    for _ in range(chance.randint(1, 3)):
        value = chance.choice(made)
        if value:
            chance.choice(DAMAGE)(value, chance)
    if chance.random() < 0.1:
        del made[chance.randrange(len(made))]
    if chance.random() < 0.1:
        one, other = chance.randrange(len(made)), chance.randrange(len(made))
        made[one], made[other] = made[other], made[one]
    return [bytes(value) for value in made]


def assert_guarded() -> None:
    """Check the guards: a read after an array must be noticed, and one before it where the mode checks that."""
    assert CHECKED or IS_INTERPRETED, (
        "memory is not watched here: see millrace.consumer.kernel.compiled"
    )
    endless = np.full(1, 0x80, np.uint8)
    reads = [(endless, 0, 2)]
    if IS_INTERPRETED:
        reads.append((endless.view(_Guarded), -1, 1))
    for octets, at, end in reads:
        try:
            walk.read_long(octets, at, end)
        except IndexError:
            continue
        raise AssertionError(f"memory is not watched here: a read at {at} of {len(octets)}")


def main() -> int:
    """See the module."""
    assert_guarded()
    seed, rounds = int(sys.argv[1]), int(sys.argv[2])
    chance = random.Random(seed)
    good = good_records()
    counts = read(good) + explained(good)
    for _ in range(rounds):
        bad = damaged(good, chance)
        for reader in (read, explained):
            try:
                counts += reader(bad)
            except MillraceError as error:
                counts[error.code] += 1
                if reader is read and "offset" not in error.context:
                    raise
    print(dict(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
