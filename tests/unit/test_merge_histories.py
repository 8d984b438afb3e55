"""Histories of statements on shards, as users of shard merges meet them: what the target executes, and what waits.

A history is data: statements by shard in their order. Between any two, each shard writes a row with all its columns.
The model has the rows of both sides: in the end each row of a shard has its values on the target, in the columns that
the shard has.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from millrace.consumer.target.merged_tables import MergedSource
from millrace.consumer.write.merged_columns import ColumnChange, column_changes, planned
from millrace.drivers.mysql.catalog import CatalogColumn
from millrace.schemas.record.control import DdlStatement
from millrace.schemas.sql.statement import classify

NOT_MERGED = "not only plain columns"  # ``merged_ddl`` lets such a statement wait


@dataclass(frozen=True, slots=True)
class History:
    """``steps``: "shard clauses". ``executed``: the shards whose statements the target executes, with the columns.

    ``waits``: a part of the reason for which the last statement waits; "" if none does. ``begin``: columns beside id.
    """

    name: str
    steps: tuple[str, ...]
    executed: tuple[str, ...] = ()
    waits: str = ""
    begin: tuple[str, ...] = ()
    shards: str = "abc"


HISTORIES = (
    History("one after the other", ("a ADD n INT", "b ADD n INT", "c ADD n INT"), ("a +n",)),
    History("two shards", ("a ADD n INT", "b ADD n INT"), ("a +n",), shards="ab"),
    History(
        "two columns in the same order",
        ("a ADD n INT", "a ADD m INT", "b ADD n INT", "b ADD m INT"),
        ("a +n", "a +m"),
    ),
    History(
        "two columns in another order",
        ("a ADD n INT", "a ADD m INT", "b ADD m INT", "b ADD n INT", "c ADD m INT", "c ADD n INT"),
        ("a +n", "a +m"),
    ),
    History(
        "a column for a moment, then one that all get",
        ("a ADD n INT", "a DROP n", "a ADD m FLOAT", "b ADD m FLOAT", "c ADD m FLOAT"),
        ("a +n", "a -n", "a +m"),
    ),
    History("another type", ("a ADD n INT", "b ADD n VARCHAR(10)"), ("a +n",), "added it as INT"),
    History("a similar type", ("a ADD n INT", "b ADD n FLOAT"), ("a +n",), "added it as INT"),
    History(
        "another default",
        ("a ADD n INT DEFAULT 0", "b ADD n INT DEFAULT -1"),
        ("a +n",),
        "added it as INT DEFAULT 0",
    ),
    History(
        "another collation",
        (
            "a ADD n VARCHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
            "b ADD n VARCHAR(10) CHARACTER SET latin1 COLLATE latin1_bin",
        ),
        ("a +n",),
        "this source may have other values",
    ),
    History(
        "the same collation",
        tuple(
            f"{shard} ADD n VARCHAR(10) CHARACTER SET latin1 COLLATE latin1_bin" for shard in "abc"
        ),
        ("a +n",),
    ),
    History("a value is needed", ("a ADD n INT NOT NULL",), waits="would have no value"),
    History(
        "a value is needed, with defaults, in another order",
        (
            "a ADD n INT NOT NULL DEFAULT 10",
            "a ADD m INT NOT NULL DEFAULT 20",
            "b ADD m INT NOT NULL DEFAULT 20",
            "b ADD n INT NOT NULL DEFAULT 10",
            "c ADD n INT NOT NULL DEFAULT 10",
            "c ADD m INT NOT NULL DEFAULT 20",
        ),
        ("a +n", "a +m"),
    ),
    History(
        "each has another place",
        ("a ADD n INT FIRST", "b ADD n INT AFTER id", "c ADD n INT"),
        ("a +n",),
    ),
    History("a time of the statement", ("a ADD n DATETIME DEFAULT NOW()",), waits=NOT_MERGED),
    History("a computed column", ("a ADD n INT AS (id + 1)",), waits=NOT_MERGED),
    History("a counted key", ("a ADD n INT UNIQUE AUTO_INCREMENT",), waits=NOT_MERGED),
    History("columns in brackets", ("a ADD COLUMN (n INT, m INT)",), waits=NOT_MERGED),
    History(
        "several clauses",
        ("a ADD n INT, ADD m INT", "b ADD n INT, ADD m INT", "c ADD n INT, ADD m INT"),
        ("a +n", "a +m"),
    ),
    History(
        "a column of all goes with the last",
        ("a DROP b", "b DROP b", "c DROP b"),
        ("c -b",),
        begin=("b",),
    ),
    History(
        "two columns go with the last",
        ("a DROP b, DROP c", "b DROP b, DROP c", "c DROP b, DROP c"),
        ("c -b", "c -c"),
        begin=("b", "c"),
    ),
    History(
        "one comes and another goes in one statement",
        ("a ADD n INT, DROP b", "b ADD n INT, DROP b", "c ADD n INT, DROP b"),
        ("a +n", "c -b"),
        begin=("b",),
    ),
    History(
        "all drop it, then all add it",
        ("b DROP b", "c DROP b", "a DROP b", "b ADD b INT", "c ADD b INT", "a ADD b INT"),
        ("a -b", "b +b"),
        begin=("b",),
    ),
    History(
        "one adds again what others have not dropped",
        ("a DROP b", "a ADD b INT"),
        waits="still have the values",
        begin=("b",),
    ),
    History(
        "dropped and added again among others",
        ("a ADD n INT", "b ADD n INT", "b DROP n", "b ADD n INT"),
        ("a +n",),
        "still have the values",
    ),
    History(
        "one drops, comes, and goes in turn with its own",
        ("a ADD n INT", "a DROP n", "a ADD n INT", "a DROP n", "b ADD n INT", "b DROP n"),
        ("a +n", "a -n", "a +n", "a -n", "b +n", "b -n"),
    ),
    History(
        "the last one adds what the first has dropped",
        ("a ADD n INT", "b ADD n INT", "a DROP n", "b DROP n", "c ADD n INT", "c DROP n"),
        ("a +n", "b -n", "c +n", "c -n"),
    ),
    History(
        "a column that one shard still has stays",
        ("a ADD n INT", "b ADD n INT", "b DROP n", "c ADD n INT", "a DROP n"),
        ("a +n",),
    ),
    History(
        "another column meanwhile",
        ("a ADD n INT", "b DROP b", "a DROP b", "c ADD n INT", "b ADD n INT", "c DROP b"),
        ("a +n", "c -b"),
        begin=("b",),
    ),
    History("a new name", ("a CHANGE b n INT",), waits=NOT_MERGED, begin=("b",)),
    History("a new name, in short", ("a RENAME COLUMN b TO n",), waits=NOT_MERGED, begin=("b",)),
    History("a wider type", ("a MODIFY b BIGINT",), waits=NOT_MERGED, begin=("b",)),
    History("a new default", ("a ALTER COLUMN b SET DEFAULT 5",), waits=NOT_MERGED, begin=("b",)),
    History("a unique key", ("a ADD UNIQUE KEY k (b)",), waits=NOT_MERGED, begin=("b",)),
    History("a key", ("a ADD INDEX k (b)",), waits=NOT_MERGED, begin=("b",)),
    History("another key of the same name", ("a DROP INDEX k, ADD INDEX k (b)",), waits=NOT_MERGED),
    History("a name of a key", ("a RENAME INDEX k TO l",), waits=NOT_MERGED),
    History("the primary key", ("a DROP PRIMARY KEY, ADD PRIMARY KEY (id, b)",), waits=NOT_MERGED),
    History("a character set", ("a CONVERT TO CHARACTER SET utf8mb4",), waits=NOT_MERGED),
    History("a default character set", ("a DEFAULT CHARACTER SET utf8mb4",), waits=NOT_MERGED),
    History(
        "a partition", ("a ADD PARTITION (PARTITION p VALUES LESS THAN (9))",), waits=NOT_MERGED
    ),
    History("a table's name", ("a RENAME TO u",), waits=NOT_MERGED),
)

Row = dict[str, object]


@dataclass
class Model:
    """Both sides. ``rows`` of each shard, and ``target``: by shard and id."""

    history: History
    columns: dict[str, CatalogColumn] = field(default_factory=dict)
    sources: dict[str, MergedSource] = field(default_factory=dict)
    own: dict[str, dict[str, object]] = field(default_factory=dict)
    rows: dict[tuple[str, int], Row] = field(default_factory=dict)
    target: dict[tuple[str, int], Row] = field(default_factory=dict)
    defaults: Row = field(default_factory=dict)  # of the target's table
    executed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        begin = self.history.begin
        self.defaults = dict.fromkeys(begin)
        self.columns = {name: _column(name) for name in ("id", *begin)}
        for shard in self.history.shards:
            self.sources[shard] = MergedSource("t", (shard, "t"), {"shard": shard})
            self.own[shard] = dict.fromkeys(begin)

    def execute(self, step: str) -> str:
        """A statement of one shard, with the rows that it writes before; why it waits."""
        shard, _, clauses = step.partition(" ")
        self.write()
        sql = f"ALTER TABLE t {clauses}"
        changes = column_changes(classify(sql, "d"), DdlStatement(sql, "", (), {}))
        if changes is None:
            return NOT_MERGED
        others = [source for name, source in self.sources.items() if name != shard]
        found = planned(changes, self.sources[shard], others, self.columns, lambda: True)
        if found.waits:
            return found.waits
        for change in found.executed:
            self._alter(shard, change)
        self.sources |= {source.name[0]: source for source in found.sources}
        for change in changes:
            self._alter_source(shard, change)
        return ""

    def write(self) -> None:
        """Each shard inserts a row with a value in each of its columns, and changes its first one."""
        number = len(self.rows)
        for shard, own in self.own.items():
            row: Row = {name: f"{shard}{number}{name}" for name in own}
            ids = [key for key in self.rows if key[0] == shard]
            for key in [(shard, number), *ids[:1]]:
                assert row.keys() <= self.columns.keys(), (
                    "a source has a column that the target lost"
                )
                self.rows[key] = dict(row)
                self.target[key] = {**self.target.get(key, self.defaults), **row}

    def check(self) -> None:
        """Each row of a shard has its values on the target."""
        self.write()
        for key, row in self.rows.items():
            assert {name: self.target[key][name] for name in row} == row, key

    def _alter(self, shard: str, change: ColumnChange) -> None:
        self.executed.append(f"{shard} {'+' if change.definition else '-'}{change.column}")
        if not change.definition:
            del self.columns[change.column], self.defaults[change.column]
            for row in self.target.values():
                del row[change.column]
            return
        self.columns[change.column] = _column(change.column)
        self.defaults[change.column] = change.definition  # of which it is a part
        for row in self.target.values():
            row[change.column] = change.definition

    def _alter_source(self, shard: str, change: ColumnChange) -> None:
        if change.definition:
            self.own[shard][change.column] = change.definition
        else:
            del self.own[shard][change.column]
        for key, row in self.rows.items():
            if key[0] == shard and change.definition:
                row[change.column] = change.definition
            elif key[0] == shard:
                del row[change.column]


def _column(name: str) -> CatalogColumn:
    return CatalogColumn(name, "int", "int", "", "", True, False)


def _ended(model: Model, steps: Sequence[str]) -> str:
    """Why the last of these statements waits. No other one may."""
    for at, step in enumerate(steps):
        if waits := model.execute(step):
            assert at == len(steps) - 1, (step, waits)
            return waits
        model.check()
    return ""


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)
def test_history_ends_as_the_rules_say(history: History) -> None:
    """The target executes the first ADD and the last DROP; what is not the same for all waits."""
    model = Model(history)
    waits = _ended(model, history.steps)
    assert bool(waits) == bool(history.waits), waits
    assert history.waits in waits
    assert tuple(model.executed) == history.executed
    model.check()
