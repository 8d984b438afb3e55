"""Net changes, level after level in any order, give the same rows as the changes one by one."""

import random
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.consumer.kernel import merge
from millrace.consumer.kernel.walk import OP_CREATE, OP_DELETE, SLOT
from millrace.consumer.records.numbers import Ints, RecordNumbers
from millrace.consumer.records.row_schemas import RowSchemas
from millrace.consumer.records.rows import Rows, walk_values
from millrace.consumer.tables.merge_rules import merge_rule
from millrace.consumer.tables.table_plans import Catalogue, TablePlans
from millrace.consumer.write.changes import leveled
from millrace.drivers.mysql.catalog import Inventory
from millrace.schemas.record.avro_schema import envelope_schema
from tests.kit.apply.history import (
    IDS,
    Change,
    History,
    Tables,
    collated,
    inventory,
    make_history,
    schemas,
)
from tests.kit.apply.topic import SET, RecordStream
from tests.kit.apply.values import values_of
from tests.kit.examples import examples

NAMES = tuple(schemas("bank"))
TEXTS = {
    100 + at: envelope_schema(SET, made).text for at, made in enumerate(schemas("bank").values())
}
ALONE = replace(inventory("bank"), foreign_keys=())  # p is EXACT only without its child


def _walked(history: History, known: Inventory) -> tuple[Rows, TablePlans]:
    stream = RecordStream()
    for made in schemas("bank").values():
        stream.introduce(made)
    columns = {
        name: [column.name for column in made.columns] for name, made in schemas("bank").items()
    }
    for name, before, after in history.changes.values():
        left, right = (dict(zip(columns[name], row or (), strict=False)) for row in (before, after))
        made = schemas("bank")[name]
        if before is None:
            stream.insert(made, right)
        elif after is None:
            stream.delete(made, left)
        else:
            stream.update(made, left, right)
    plans = TablePlans(Catalogue("model", RowSchemas(TEXTS), known))
    rows = walk_values(values_of(stream.values[len(NAMES) :]), plans.programs)
    assert len(rows) == len(history.changes)
    return rows, plans


def _apply(tables: Tables, history: History, change: Ints) -> None:
    """One net change; RefusedError if the rows are not as it needs them."""
    of_seq = list(history.changes.values())
    name, before, _ = of_seq[int(change[merge.BEFORE])]
    after: tuple[object, ...] | None = of_seq[int(change[merge.AFTER])][2]
    match int(change[merge.CHANGE_OP]):
        case merge.OP_ABSENT:
            assert before is not None
            assert collated(before[0]) not in tables.rows[name]
            return
        case int(op) if op == OP_CREATE:
            before = None
        case int(op) if op == OP_DELETE:
            after = None
    tables.apply(name, before, after)


@pytest.mark.parametrize("about", ["p", "accounts", "words", ""])
@examples(150, deadline=None)  # the first example may compile the kernel
@given(st.integers(0, 2**32), st.integers(1, 90))
def test_net_changes_give_the_serial_rows(about: str, seed: int, steps: int) -> None:
    """The history is cut anywhere into calls of the writer. Each change finds the row that it expects."""
    history = make_history("bank", seed=seed, steps=steps, about=about)
    rows, plans = _walked(history, ALONE if about == "p" else inventory("bank"))
    chance, tables, first = random.Random(seed), Tables(), 0
    while first < len(rows):
        end = chance.randint(first + 1, len(rows))
        by_level = defaultdict(list)
        for change in leveled(plans, rows, RecordNumbers(np.arange(first, end))):
            by_level[int(change[merge.LEVEL])].append(change)
        for level in sorted(by_level):
            for change in chance.sample(by_level[level], len(by_level[level])):
                _apply(tables, history, change)
        first = end
    assert tables == history.tables


def _history(*changes: Change) -> History:
    history = History(RecordStream())
    history.changes = dict(enumerate(changes, 1))
    return history


def _merged(
    *changes: Change, known: Inventory = ALONE, hash_mask: int = -1
) -> list[tuple[str, int, int]]:
    """(operation, seq of the before image, seq of the after image) of each net change."""
    rows, plans = _walked(_history(*changes), known)
    slots = sorted({int(slot) for slot in rows.column(SLOT)})
    rules = plans.merge_rules(slots)
    found = merge.merge(
        rows.values.payload,
        rows.records,
        np.arange(len(rows)),
        rows.cells,
        rows.programs.widths,
        rules.rules,
        rules.parts,
        hash_mask,
    )
    return [
        (chr(line[merge.CHANGE_OP]), int(line[merge.BEFORE]), int(line[merge.AFTER]))
        for line in found
    ]


def test_chains_of_one_row_become_one_change() -> None:
    """The letters are those of the record, and `a` for a row that must be absent."""
    one, two, three = (1, 1), (1, 2), (1, 3)
    create, delete = ("p", None, one), ("p", three, None)
    first, second = ("p", one, two), ("p", two, three)
    assert _merged(create, first, second) == [("c", 0, 2)]
    assert _merged(first, second) == [("u", 0, 1)]
    assert _merged(first, second, delete) == [("d", 0, 2)]
    assert _merged(create, first, second, delete) == [("a", 3, 2)]
    assert _merged(create, first, second, delete, create, first) == [("c", 3, 5)]
    assert _merged(delete, create, first) == [("u", 0, 2)]
    assert _merged(delete, create, first, second, delete) == [("d", 0, 4)]
    assert _merged(create, create) == [("c", 0, 0), ("c", 1, 1)]  # no source logs this
    moved = ("p", three, (2, 3))
    assert _merged(first, second, moved, ("p", (2, 3), (2, 4))) == [("u", 0, 3)]
    assert _merged(create, ("p", one, (2, 1)), ("p", (2, 1), None)) == [
        ("c", 0, 0),
        ("u", 1, 1),
        ("d", 2, 2),
    ]


def test_watched_columns_keep_their_changes() -> None:
    """A further unique key orders its changes, so only updates of other columns merge."""
    one, paid, coded = (1, 1, "a", 0), (1, 1, "a", 5), (1, 2, "a", 5)
    create, pay = ("accounts", None, one), ("accounts", one, paid)
    code, delete = ("accounts", paid, coded), ("accounts", coded, None)
    assert _merged(create, pay, code, delete) == [("c", 0, 1), ("u", 2, 2), ("d", 3, 3)]
    assert _merged(pay, code, delete) == [("u", 0, 1), ("d", 2, 2)]
    assert _merged(pay, ("accounts", paid, None)) == [("d", 0, 1)]


def test_equal_hashes_never_merge_two_rows() -> None:
    """All rows of both tables get one hash entry by hash, and their own by their bytes."""
    changes: list[Change] = []
    for key in range(1, IDS):
        changes += [("p", None, (key, 0)), ("words", None, (f"w{key}", 0))]
    for key in range(1, IDS):
        changes += [("p", (key, 0), (key, 1)), ("words", (f"w{key}", 0), None)]
    assert _merged(*changes, hash_mask=0) == _merged(*changes)
    assert len(_merged(*changes)) == 2 * (IDS - 1)


def test_tables_whose_states_matter_keep_all_changes() -> None:
    """A trigger, a cascade, system versioning, a key that is not written, and no key."""
    plans = TablePlans(Catalogue("rules", RowSchemas(TEXTS), ALONE))

    def mode(name: str, known: Inventory) -> int:
        plan = TablePlans(Catalogue("rules", RowSchemas(TEXTS), known)).table_plan(
            NAMES.index(name)
        )
        return merge_rule(plan, known).mode

    assert [mode(name, ALONE) for name in NAMES] == [
        merge.FREE,
        merge.NET,
        merge.KEEP,
        merge.EXACT,
        merge.EXACT,
    ]
    assert mode("p", inventory("bank")) == merge.FREE
    assert mode("c", inventory("bank")) == merge.KEEP
    assert mode("p", replace(ALONE, triggers={("bank", "p"): ("t",)})) == merge.KEEP
    table = plans.table_plan(NAMES.index("p")).target
    versioned = replace(table, is_versioned=True)
    assert mode("p", replace(ALONE, tables={("bank", "p"): versioned})) == merge.KEEP
    generated = {**table.columns, "v": replace(table.columns["v"], generated=True)}
    key = replace(table.unique_keys[0], name="v", columns=("v",))
    hidden = replace(table, columns=generated, unique_keys=(*table.unique_keys, key))
    assert mode("p", replace(ALONE, tables={("bank", "p"): hidden})) == merge.KEEP


def test_rows_of_two_schemas_of_one_table_keep_their_order() -> None:
    """Their chains would not meet, so nothing merges in such a call."""
    texts = {**TEXTS, 200: TEXTS[100 + NAMES.index("p")]}
    plans = TablePlans(Catalogue("two", RowSchemas(texts), ALONE))
    one = NAMES.index("p")
    assert plans.merge_rules([one]).rules[one, merge.MODE] == merge.EXACT
    both = plans.merge_rules([one, len(TEXTS)])
    assert both.rules[[one, len(TEXTS)], merge.MODE].tolist() == [merge.KEEP, merge.KEEP]
    assert plans.merge_rules([one]).rules[one, merge.MODE] == merge.EXACT
