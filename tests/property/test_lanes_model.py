"""Lanes in any order of groups and levels give the same rows as the changes one by one.

A random valid history of a table with a primary key and two unique keys is encoded, planned and executed on a model of
rows that refuses every violation: once by groups in any order, and once by levels in any order inside.
"""

import random
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.consumer.kernel.groups import pack_lanes
from millrace.consumer.kernel.walk import OP, SEQ, SLOT
from millrace.consumer.records.numbers import RecordNumbers, Slots
from millrace.consumer.records.row_schemas import RowSchemas
from millrace.consumer.records.rows import Rows, walk_values
from millrace.consumer.tables.causality_keys import KeyEntries, find_keys
from millrace.consumer.tables.table_plans import Catalogue, TablePlans, slots_of
from millrace.drivers.mysql.catalog import CatalogColumn, CatalogTable, Inventory, UniqueKey
from millrace.schemas.record.avro_schema import envelope_schema
from tests.kit.apply.folds import general_fold
from tests.kit.apply.tables import accounts
from tests.kit.apply.topic import SET, RecordStream
from tests.kit.apply.values import values_of

TABLE = accounts("bank")
Row = tuple[int, int | None, str | None, int]
CODES = [None, 1, 2, 3]
MAILS = [None, "a", "A", "b ", "b", "é", "e", "E"]


def _collated(mail: str | None) -> str | None:
    """Return what utf8mb4_general_ci treats as equal, for the texts above."""
    return None if mail is None else mail.rstrip(" ").lower().replace("é", "e")


@dataclass
class Model:
    """Rows by id; a change that a server would refuse fails the test."""

    rows: dict[int, Row]

    def allows(self, row: Row, *, instead_of: int | None = None) -> bool:
        others = [other for number, other in self.rows.items() if number != instead_of]
        return not any(
            other[0] == row[0]
            or (row[1] is not None and other[1] == row[1])
            or (row[2] is not None and _collated(other[2]) == _collated(row[2]))
            for other in others
        )

    def apply(self, change: "Change") -> None:
        before, after = change
        if before is not None:
            assert self.rows.get(before[0]) == before, "the row is not as the change saw it"
        if after is not None:
            assert self.allows(after, instead_of=before[0] if before else None), "a key is taken"
        if before is not None:
            del self.rows[before[0]]
        if after is not None:
            self.rows[after[0]] = after


Change = tuple[Row | None, Row | None]


@st.composite
def histories(draw: st.DrawFn) -> list[Change]:
    """Draw changes that a server would accept one after the other."""
    chance = random.Random(draw(st.integers(0, 2**32)))
    model, history = Model({}), list[Change]()
    for _ in range(draw(st.integers(1, 60))):
        row = (
            chance.randint(1, 5),
            chance.choice(CODES),
            chance.choice(MAILS),
            chance.randint(0, 9),
        )
        before = model.rows.get(chance.randint(1, 5))
        change: Change = (before, row if chance.random() < 0.7 or before is None else None)
        after = change[1]
        if after is not None and not model.allows(after, instead_of=before[0] if before else None):
            continue
        model.apply(change)
        history.append(change)
    return history


def _encoded(history: list[Change]) -> Rows:
    stream = RecordStream()
    names = [column.name for column in TABLE.columns]
    for before, after in history:
        left = dict(zip(names, before, strict=True)) if before else {}
        right = dict(zip(names, after, strict=True)) if after else {}
        if before is None:
            stream.insert(TABLE, right)
        elif after is None:
            stream.delete(TABLE, left)
        else:
            stream.update(TABLE, left, right)
    return walk_values(values_of(stream.values[1:]), _plans().programs)


def _plans() -> TablePlans:
    types = {"id": "int", "code": "int", "mail": "varchar", "amount": "int"}
    columns = {
        name: CatalogColumn(
            name,
            type_,
            type_,
            "utf8mb4" if name == "mail" else "",
            "utf8mb4_general_ci" if name == "mail" else "",
            name != "id",
            False,
        )
        for name, type_ in types.items()
    }
    keys = tuple(
        UniqueKey(name, (column,), True)
        for name, column in (("PRIMARY", "id"), ("code", "code"), ("mail", "mail"))
    )
    target = CatalogTable("bank", "accounts", columns, keys)
    folds = {"utf8mb4_general_ci": general_fold()}
    inventory = Inventory(tables={("bank", "accounts"): target}, folds=folds)
    return TablePlans(
        Catalogue("model", RowSchemas({100: envelope_schema(SET, TABLE).text}), inventory)
    )


def _keys(rows: Rows) -> KeyEntries:
    programs = _plans().key_programs(slots_of(Slots(rows.column(SLOT))))
    return find_keys(rows, programs, RecordNumbers(np.arange(len(rows))))


def _serially(history: list[Change]) -> dict[int, Row]:
    model = Model({})
    for change in history:
        model.apply(change)
    return model.rows


@settings(deadline=None)  # the first example may compile the kernel
@given(histories(), st.integers(1, 6), st.integers(0, 2**32))
def test_lanes_in_any_order_give_the_serial_rows(
    history: list[Change], lane_count: int, seed: int
) -> None:
    """Groups share no key, so lanes interleave freely, and each change sees the row of its before image."""
    rows = _encoded(history)
    assert len(rows) == len(history)
    weights = np.ones(len(rows), np.int64)
    lanes = pack_lanes(_keys(rows).groups(len(rows)), weights, lane_count)
    waiting = [
        [number for number in range(len(rows)) if lanes[number] == lane]
        for lane in range(lane_count)
    ]
    chance, model = random.Random(seed), Model({})
    while any(waiting):
        lane = chance.choice([lane for lane in waiting if lane])
        model.apply(history[lane.pop(0)])
    assert model.rows == _serially(history)


@settings(deadline=None)  # the first example may compile the kernel
@given(histories(), st.integers(0, 2**32))
def test_records_of_a_level_apply_in_any_order(history: list[Change], seed: int) -> None:
    """The records of each level are shuffled; the rows match those of the serial order."""
    rows = _encoded(history)
    levels = _keys(rows).levels(len(rows))
    chance, model = random.Random(seed), Model({})
    for level in range(int(levels.max(initial=-1)) + 1):
        numbers = [number for number in range(len(rows)) if levels[number] == level]
        chance.shuffle(numbers)
        for number in numbers:
            model.apply(history[number])
    assert model.rows == _serially(history)


@settings(deadline=None)  # the first example may compile the kernel
@given(histories())
def test_walked_records_keep_their_seq_and_operation(history: list[Change]) -> None:
    """The walk gives seq and operation of each record in the written order."""
    rows = _encoded(history)
    wanted = ["c" if before is None else "d" if after is None else "u" for before, after in history]
    assert [chr(op) for op in rows.column(OP)] == wanted
    assert list(rows.column(SEQ)) == list(range(1, len(history) + 1))
