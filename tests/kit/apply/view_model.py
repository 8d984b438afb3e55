"""A random view over a random history, a model target with the view's tables, and the rows that must be there.

    source      target      the view
    accounts    people      other names of columns, one left out, one masked, two added, a condition
    words       terms       another name, a condition
    bag         sack        a condition; no key, so equal rows differ only in number
    p, c        parents,    other names; a condition on the child, whose rows a cascade without records deletes
                children

With shards, accounts and words of several databases are merged: the database's name is in each unique key.

The expected rows are those of the source, filtered and changed by Python. The writer of the model takes the values from
the cells, so a wrong name, image, operation or value fails.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np
import pytest

from millrace.consumer.kernel import merge, walk
from millrace.consumer.records.numbers import Ints, RecordNumbers
from millrace.consumer.records.row_schemas import RowSchemas
from millrace.consumer.records.rows import Rows, walk_values
from millrace.consumer.tables.filter import Route
from millrace.consumer.tables.table_plan import AFTER, BEFORE
from millrace.consumer.tables.table_plans import Catalogue, TablePlans
from millrace.consumer.write import large_transaction, target_transaction
from millrace.consumer.write.changes import leveled
from millrace.drivers.mysql.catalog import CatalogColumn, Inventory, UniqueKey
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour
from millrace.schemas.record.control import SchemaRecord
from millrace.schemas.record.record import decode_control
from millrace.schemas.view.view import Mask, MaskKind, TableRule, View
from tests.kit.apply.history import (
    History,
    RefusedError,
    Tables,
    collated,
    inventory,
    make_history,
    make_sharded_history,
    schemas,
)
from tests.kit.apply.model import (
    ModelTarget,
    ModelWriter,
    State,
    Turn,
    model_patched,
    one_turn,
    run_randomly,
    whole_turn,
)
from tests.kit.apply.model_spread import one_spread_turn, spread_patched
from tests.kit.apply.values import values_of
from tests.kit.apply.view_rows import value_of

OTHER_ROWS = "other rows under a view"

Image = Mapping[str, object]
_Is = Callable[[Image], bool]
_names = count(1)

NAMES = {"accounts": "people", "words": "terms", "bag": "sack", "p": "parents", "c": "children"}
Keys = Mapping[str, tuple[tuple[str, ...], ...]]
_UNIQUE: Keys = {
    "people": (("no",), ("code",), ("email",)),
    "terms": (("word",),),
    "sack": (),
    "parents": (("id",),),
    "children": (("id",),),
}
_MERGED: Keys = {
    "people": (("shard", "no"), ("code", "shard"), ("email", "shard")),
    "terms": (("word", "shard"),),
}
# of each table: conditions with what they mean; a NULL is not true
_CONDITIONS: dict[str, list[tuple[str, _Is]]] = {
    "accounts": [
        ("", lambda _: True),
        ("amount < 5", lambda row: row["amount"] < 5),  # type: ignore[operator]
        ("code % 3 = 1", lambda row: row["code"] is not None and row["code"] % 3 == 1),  # type: ignore[operator]
        ("code IS NULL OR id > 6", lambda row: row["code"] is None or row["id"] > 6),  # type: ignore[operator]
        ("NOT (code = 2 AND amount > 1)", lambda row: _not_both(row["code"], row["amount"])),
    ],
    "words": [
        ("", lambda _: True),
        ("n % 2 = 0", lambda row: row["n"] is not None and row["n"] % 2 == 0),  # type: ignore[operator]
        ("n IS NOT NULL", lambda row: row["n"] is not None),
    ],
    "bag": [("", lambda _: True), ("n IS NULL", lambda row: row["n"] is None)],
    "p": [("", lambda _: True)],
    "c": [("", lambda _: True), ("id % 3 <> 1", lambda row: row["id"] % 3 != 1)],  # type: ignore[operator]
}


def _not_both(code: object, amount: object) -> bool:
    """``NOT (code = 2 AND amount > 1)`` with a NULL in ``code``."""
    assert isinstance(amount, int)
    return amount <= 1 if code is None else not (code == 2 and amount > 1)


@dataclass(frozen=True)
class Scene:
    """A view, and what it means. ``shards``: the databases that it merges."""

    view: View
    tests: Mapping[str, _Is]
    has_amount: bool
    is_masked: bool
    shards: tuple[str, ...] = ()

    @property
    def names(self) -> Mapping[str, str]:
        """The tables of the target by those of the source."""
        return {name: to for name, to in NAMES.items() if not self.shards or to in _MERGED}

    @property
    def unique(self) -> Keys:
        """The unique keys of the target."""
        return _MERGED if self.shards else _UNIQUE

    def row(self, name: str, row: Image, shard: str) -> Image | None:
        """The row that the view makes of a row of the source; None: nothing."""
        if not self.tests[name](row):
            return None
        if name != "accounts":
            return {**row, "shard": shard} if self.shards else row
        found = {"no": row["id"], "code": row["code"], "email": row["mail"]}
        if self.has_amount:
            found["amount"] = 0 if self.is_masked else row["amount"]
        return found | {"shard": shard or "accounts.bank", "part": -7}


_OF_PARENTS: list[tuple[str, _Is]] = [
    ("v % 2 = 0", lambda row: row["v"] is not None and row["v"] % 2 == 0),  # type: ignore[operator]
    ("v IS NULL OR v > 4", lambda row: row["v"] is None or row["v"] > 4),  # type: ignore[operator]
]


def make_scene(
    chance: random.Random, *, has_cascades: bool = True, shards: tuple[str, ...] = ()
) -> Scene:
    """A random view. A condition on the parent is refused where its rows cascade."""
    conditions = _CONDITIONS | ({} if has_cascades else {"p": _OF_PARENTS})
    chosen = {name: chance.choice(some) for name, some in conditions.items()}
    has_amount, is_masked = chance.random() < 0.7, chance.random() < 0.5
    rules = []
    for name, target in NAMES.items():
        rule = TableRule(f"bank.{name}", f"copy.{target}", where=chosen[name][0])
        if shards and target not in _MERGED:
            continue
        if shards:
            added = (("shard", "{1}"),)
            rule = replace(rule, source=f"bank_*.{name}", add=added, merge=True)
        if name == "accounts":
            rule = replace(
                rule,
                drop=() if has_amount else ("amount",),
                rename=(("id", "no"), ("mail", "email")),
                add=(("part", -7), ("shard", "{1}" if shards else "{table}.{database}")),
                masks=(("amount", Mask(MaskKind.REDACT)),) if has_amount and is_masked else (),
            )
        rules.append(rule)
    chance.shuffle(rules)
    tests = {name: condition[1] for name, condition in chosen.items()}
    return Scene(View(tuple(rules)), tests, has_amount, is_masked, shards)


def target_inventory(scene: Scene) -> Inventory:
    """The tables under their names in the view: other orders of columns, and one more that has a default."""
    known = inventory("bank")
    found = {}
    for name, target in scene.names.items():
        table = known.tables["bank", name]
        renamed = {"id": "no", "mail": "email"} if name == "accounts" else {}
        columns = {
            renamed.get(column.name, column.name): replace(
                column, name=renamed.get(column.name, column.name)
            )
            for column in reversed(list(table.columns.values()))
            if column.name != "amount" or scene.has_amount
        }
        if scene.shards or name == "accounts":
            text = columns["email" if name == "accounts" else "word"]
            shard = replace(text, name="shard", nullable=False)
            columns["shard"] = shard if scene.shards else replace(shard, collation="utf8mb4_bin")
        if name == "accounts":
            columns |= {
                "part": CatalogColumn("part", "int", "int", "", "", False, False),
                "own": CatalogColumn("own", "int", "int", "", "", True, False),
            }
        keys = tuple(
            UniqueKey("".join(key) if at else "PRIMARY", key, True)
            for at, key in enumerate(scene.unique[target])
        )
        found["copy", target] = replace(
            table, database="copy", table=target, columns=columns, unique_keys=keys
        )
    (foreign,) = known.foreign_keys
    foreign = replace(foreign, child=("copy", "children"), parent=("copy", "parents"))
    return replace(known, tables=found, foreign_keys=() if scene.shards else (foreign,))


Row = tuple[tuple[str, object], ...]


def _row(image: Image) -> Row:
    return tuple(sorted(image.items()))


@dataclass
class ViewTables:
    """The rows of the target's tables. A server refuses what ``apply`` refuses."""

    rows: dict[str, Counter[Row]] = field(
        default_factory=lambda: {name: Counter() for name in NAMES.values()}
    )
    unique: Keys = field(default_factory=lambda: _UNIQUE)

    @classmethod
    def of(cls, scene: Scene) -> "ViewTables":
        """Empty tables."""
        return cls({name: Counter() for name in scene.names.values()}, scene.unique)

    def copy(self) -> "ViewTables":
        """An independent copy."""
        return ViewTables({name: Counter(rows) for name, rows in self.rows.items()}, self.unique)

    def apply(self, name: str, before: Image | None, after: Image | None) -> None:
        """Apply one change; RefusedError leaves the rows unchanged."""
        left = Counter(self.rows[name])
        if before is not None:
            if not left[_row(before)]:
                raise RefusedError
            left -= Counter([_row(before)])
        if after is not None:
            for key in self.unique[name]:
                value = _of_key(after, key)
                if None not in value and value in (_of_key(dict(row), key) for row in left):
                    raise RefusedError
            left[_row(after)] += 1
        self.rows[name] = left
        if name == "parents" and before is not None and after is None:
            children = self.rows["children"]
            kept = {row: n for row, n in children.items() if dict(row)["p"] != before["id"]}
            self.rows["children"] = Counter(kept)


def _of_key(image: Image, key: tuple[str, ...]) -> tuple[object, ...]:
    return tuple(collated(image[column]) for column in key)


def image_of(plans: TablePlans, rows: Rows, number: int, which: int) -> dict[str, object]:
    """An image of a record (``BEFORE``, ``AFTER``), from its cells, by the columns of the target's plan."""
    record = rows.records[number]
    slot = int(record[walk.SLOT])
    begin = int(record[walk.FIRST_CELL]) + which * int(rows.programs.widths[slot])
    return {
        column.name: value_of(rows.values.payload, rows.cells, begin + at)
        for at, column in plans.table_plan(slot).columns
    }


def apply_merged(seed: int, *, about: str, steps: int, shards: tuple[str, ...] = ()) -> None:
    """Merge a history of one table under a view, cut anywhere; AssertionError if the rows are wrong."""
    history, sources = _sources(seed, shards, steps=steps, about=about)
    chance = random.Random(seed)
    scene = make_scene(chance, has_cascades=False, shards=shards)
    known = replace(target_inventory(scene), foreign_keys=())
    texts = {
        record.value.id: record.value.schema.text
        for record in (decode_control(v) for v in history.stream.values if v[5] not in (0, 2))
        if isinstance(record, SchemaRecord)
    }
    plans = TablePlans(Catalogue("", RowSchemas(texts), known, Route(scene.view)))
    values = values_of([value for value in history.stream.values if value[5] in (0, 2)])
    rows, tables, first = walk_values(values, plans.programs), ViewTables.of(scene), 0
    while first < len(rows):
        end = chance.randint(first + 1, len(rows))
        rows, numbers = plans.through_view(rows, RecordNumbers(np.arange(first, end)))
        levels: dict[int, list[Ints]] = {}
        for change in leveled(plans, rows, numbers) if len(numbers) else ():
            levels.setdefault(int(change[merge.LEVEL]), []).append(change)
        for _, changes in sorted(levels.items()):
            for change in chance.sample(changes, len(changes)):
                _apply_net(tables, plans, rows, change)
        first = end
    assert tables.rows == expected(scene, sources), OTHER_ROWS


def _sources(
    seed: int, shards: tuple[str, ...], *, about: str = "", **more: Any
) -> tuple[History, dict[str, Tables]]:
    """A history of one database, or of all shards, and the rows of each."""
    if not shards:
        history = make_history("bank", seed=seed, about=about, **more)
        return history, {"": history.tables}
    databases = [f"bank_{shard}" for shard in shards]
    history, tables = make_sharded_history(databases, seed=seed, about=about or "merged", **more)
    return history, dict(zip(shards, tables, strict=True))


def _apply_net(tables: ViewTables, plans: TablePlans, rows: Rows, change: Ints) -> None:
    op = int(change[merge.CHANGE_OP])
    if op == merge.OP_ABSENT:
        return
    before = image_of(plans, rows, int(change[merge.BEFORE]), BEFORE)
    after = image_of(plans, rows, int(change[merge.AFTER]), AFTER)
    slot = int(rows.records[int(change[merge.PLACE]), walk.SLOT])
    tables.apply(
        plans.table_plan(slot).target.table,
        None if op == walk.OP_CREATE else before,
        None if op == walk.OP_DELETE else after,
    )


class ViewWriter(ModelWriter):
    """Takes the values of a change from the cells, as the columns of the target's plan name them."""

    def _apply(self, rows: Rows, numbers: RecordNumbers) -> None:
        for number in map(int, numbers):
            change = self._change(rows, number)
            try:
                self._session.work.tables.apply(*change)
            except RefusedError:
                raise Fatal("MR-5010", f"{change} is refused") from None

    def _change(self, rows: Rows, number: int) -> tuple[str, Image | None, Image | None]:
        op = int(rows.records[number, walk.OP])
        before, after = (
            None if op == absent else image_of(self._plans, rows, number, which)
            for which, absent in ((BEFORE, walk.OP_CREATE), (AFTER, walk.OP_DELETE))
        )
        target = self._plans.table_plan(int(rows.records[number, walk.SLOT])).target
        return target.table, before, after


def expected(scene: Scene, sources: Mapping[str, Tables]) -> dict[str, Counter[Row]]:
    """The source's rows as the view has them. ``sources``: by the shard's name."""
    return {target: Counter(_shown(scene, sources, name)) for name, target in scene.names.items()}


def _shown(scene: Scene, sources: Mapping[str, Tables], name: str) -> Iterator[Row]:
    names = [column.name for column in schemas("bank")[name].columns]
    for shard, tables in sources.items():
        for row in tables.sorted(name):
            shown = scene.row(name, dict(zip(names, row, strict=True)), shard)
            if shown is not None:
                yield _row(shown)


def run_view(
    seed: int,
    *,
    steps: int,
    flavour: Flavour = Flavour.MYSQL,
    guard: Callable[[pytest.MonkeyPatch], None] | None = None,
    shards: tuple[str, ...] = (),
) -> None:
    """Apply a history under a view, in solo, transactional and spread turns; AssertionError if the rows are wrong."""
    history, sources = _sources(seed, shards, steps=steps, flavour=flavour)
    chance = random.Random(seed)
    scene = make_scene(chance, shards=shards)
    target = ModelTarget(history, chance, 0.1, view=scene.view, inventory=target_inventory(scene))
    target.state = State(tables=ViewTables.of(scene))
    turns: list[Turn] = [one_turn, one_spread_turn, whole_turn]
    with pytest.MonkeyPatch.context() as patch:
        model_patched(patch, target)
        spread_patched(patch, target)
        patch.setattr(target_transaction, "RowWriter", ViewWriter)
        patch.setattr(large_transaction, "RowWriter", ViewWriter)
        if guard is not None:
            guard(patch)
        run_randomly(target, task=f"view{next(_names)}", turns=turns)
    tables: Any = target.state.tables
    wanted = expected(scene, sources)
    assert tables.rows == wanted, OTHER_ROWS
    assert target.state.mark.seq == history.stream.seq
