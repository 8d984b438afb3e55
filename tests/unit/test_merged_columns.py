"""Columns of a merged table: every interleaving of the statements of three sources, and what waits for an operator."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations

import pytest

from millrace.consumer.target.merged_tables import MergedSource
from millrace.consumer.write.merged_columns import (
    ColumnChange,
    after_columns,
    column_changes,
    planned,
)
from millrace.drivers.mysql.catalog import CatalogColumn
from millrace.schemas.record.control import DdlStatement
from millrace.schemas.sql.statement import classify

SHARDS = ("a", "b", "c")
ADD, DROP = "ALTER TABLE t ADD n INT DEFAULT 5", "ALTER TABLE t DROP COLUMN n"
DEFAULT = 5


def _changes(sql: str) -> tuple[ColumnChange, ...] | None:
    return column_changes(classify(sql, "d"), DdlStatement(sql, "", (), {}))


def _column(name: str, *, nullable: bool = True, has_default: bool = False) -> CatalogColumn:
    return CatalogColumn(name, "int", "int", "", "", nullable, False, has_default=has_default)


@dataclass
class Model:
    """The target's table, its sources, and the truth: the sources that have the column, and their values in it."""

    columns: dict[str, CatalogColumn] = field(default_factory=lambda: {"id": _column("id")})
    sources: dict[str, MergedSource] = field(
        default_factory=lambda: {
            shard: MergedSource("task", (shard, "t"), {"shard": shard}) for shard in SHARDS
        }
    )
    values: dict[str, int | None] = field(default_factory=lambda: dict.fromkeys(SHARDS))
    truth: dict[str, int] = field(default_factory=dict)
    executed: list[str] = field(default_factory=list)

    def apply(self, shard: str, sql: str, plan: Callable[..., object] = planned) -> str:
        """A statement of one source, and a write of it; the reason if it waits."""
        changes = _changes(sql)
        assert changes is not None
        own, others = self.sources[shard], [self.sources[one] for one in SHARDS if one != shard]
        found = plan(changes, own, others, self.columns, lambda: True)
        if found.waits:  # type: ignore[attr-defined]
            return str(found.waits)  # type: ignore[attr-defined]
        for change in found.executed:  # type: ignore[attr-defined]
            self.executed.append(f"{shard} {change.sql.split()[0]}")
            if change.definition:
                self.columns[change.column] = _column(change.column)
                self.values = dict.fromkeys(SHARDS, DEFAULT)
            else:
                del self.columns[change.column]
                self.values = dict.fromkeys(SHARDS)
        self.sources |= {one.name[0]: one for one in found.sources}  # type: ignore[attr-defined]
        altered = ", ".join(change.sql for change in found.executed)  # type: ignore[attr-defined]
        assert after_columns(changes, own, others, altered) == list(found.sources)  # type: ignore[attr-defined]
        if "ADD" in sql:
            self.truth[shard] = DEFAULT
        else:
            self.truth.pop(shard)
        return ""

    def write(self, shard: str, value: int) -> None:
        """A row of the source gets a value, if the source has the column."""
        if shard in self.truth:
            assert "n" in self.columns, "a source has a column that the target lost"
            self.truth[shard] = self.values[shard] = value

    def check(self) -> None:
        """Each source that has the column finds its value on the target."""
        for shard, value in self.truth.items():
            assert self.values[shard] == value, f"{shard} has {self.values[shard]}, not {value}"


def _interleaved(scripts: dict[str, Sequence[str]]) -> Iterator[list[tuple[str, str]]]:
    """Each order of the statements that keeps those of one source in theirs."""
    turns = [shard for shard, script in scripts.items() for _ in script]
    for order in sorted(set(permutations(turns))):
        rest = {shard: iter(script) for shard, script in scripts.items()}
        yield [(shard, next(rest[shard])) for shard in order]


def test_every_interleaving_expands_first_and_contracts_last() -> None:
    """The target executes one ADD and one DROP, and no source loses a value meanwhile."""
    count = 0
    for steps in _interleaved(dict.fromkeys(SHARDS, (ADD, DROP))):
        model = Model()
        adds = [at for at, (_, sql) in enumerate(steps) if sql == ADD]
        waits = False
        for at, (shard, sql) in enumerate(steps):
            waits |= bool(model.apply(shard, sql))
            if waits:
                break
            for one in SHARDS:
                model.write(one, 10 * at + ord(one))
            model.check()
        # if all that have it drop the column before the last one adds it, the last one begins again
        assert not waits, steps
        assert "n" not in model.columns
        if max(adds) < min(at for at, (_, sql) in enumerate(steps) if sql == DROP):
            assert [one.split()[1] for one in model.executed] == ["ADD", "DROP"], steps
        count += 1
    assert count == 90


def test_column_that_comes_again_never_has_old_values() -> None:
    """A source drops a column that others keep, and adds it again: its rows on the target still have the values."""
    for steps in _interleaved({"a": (ADD, DROP, ADD), "b": (ADD, DROP), "c": (ADD,)}):
        model = Model()
        for at, (shard, sql) in enumerate(steps):
            if why := model.apply(shard, sql):
                assert "still have the values" in why, steps
                break
            for one in SHARDS:
                model.write(one, 10 * at + ord(one))
            model.check()


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE t ADD n INT UNIQUE",
        "ALTER TABLE t ADD n INT AS (id)",
        "ALTER TABLE t ADD n DATETIME DEFAULT CURRENT_TIMESTAMP",
        "ALTER TABLE t ADD n TIMESTAMP",
        "ALTER TABLE t ADD n INT DEFAULT (1 + 1)",
        "ALTER TABLE t ADD n CHAR(36) DEFAULT (uuid())",
        "ALTER TABLE t ADD n INT DEFAULT 1 + 1",
        "ALTER TABLE t ADD n INT DEFAULT RAND()",
        "ALTER TABLE t ADD COLUMN (n INT, m INT)",
        "ALTER TABLE t ADD COLUMN IF NOT EXISTS n INT",
        "ALTER TABLE t DROP COLUMN IF EXISTS n",
        "ALTER TABLE t ADD n INT REFERENCES other (id)",
        "ALTER TABLE t ADD n INT, COMMENT 'x'",
        "ALTER TABLE t ADD n INT, ENGINE=InnoDB",
        "ALTER TABLE t ADD KEY (id)",
        "ALTER TABLE t DROP PRIMARY KEY",
        "ALTER TABLE t DROP PARTITION n",
        "ALTER TABLE t MODIFY n INT",
        "ALTER IGNORE TABLE t ADD n INT",
        "CREATE INDEX n ON t (id)",
    ],
)
def test_other_clauses_are_not_merged(sql: str) -> None:
    """Only plain columns with constant values are the same for all sources."""
    assert _changes(sql) is None


def test_clauses_are_those_of_the_target() -> None:
    """Without the place among columns, options of the execution, and with quoted names."""
    found = _changes(
        "ALTER TABLE t ADD COLUMN `n``x` varchar(9) default 'a' first, DROP m, LOCK=NONE"
    )
    assert found is not None
    assert [change.sql for change in found] == [
        "ADD COLUMN `n``x` VARCHAR ( 9 ) DEFAULT 'a'",
        "DROP COLUMN `m`",
    ]
    must = _changes("ALTER TABLE t ADD n INT NOT NULL AFTER id")
    assert must == (ColumnChange("n", "INT NOT NULL", has_default=False),)
    has = _changes("ALTER TABLE t ADD n DECIMAL(4,2) NOT NULL DEFAULT -1.5 COMMENT 'x'")
    assert has is not None
    assert has[0].has_default


OWN, OTHER = (MergedSource("t", (shard, "t"), {"shard": shard}) for shard in "ab")
N = {"n": _column("n")}


@pytest.mark.parametrize(
    ("sql", "others", "columns", "says"),
    [
        ("ALTER TABLE t ADD n INT NOT NULL", [], {}, "would have no value"),
        ("ALTER TABLE t ADD n INT", [OTHER], N, "the target has it"),
        (DROP, [OTHER], {}, "the target does not have it"),
        (DROP, [OTHER], {"n": _column("n", nullable=False)}, "need a value"),
        (DROP, [], N, "a source that is not known"),
    ],
)
def test_operator_decides_where_values_could_differ(
    sql: str, others: list[MergedSource], columns: dict[str, CatalogColumn], says: str
) -> None:
    """Nothing is executed, and no state changes."""
    changes = _changes(sql)
    assert changes is not None
    found = planned(changes, OWN, others, columns, lambda: False)
    assert says in found.waits
    assert (found.executed, found.sources) == ((), ())


def test_other_definition_of_one_column_waits() -> None:
    """Also of a source that has written nothing yet."""
    model = Model()
    assert model.apply("a", ADD) == ""
    assert "other sources added it as INT DEFAULT 5" in model.apply("b", ADD.replace("5", "6"))
    new = MergedSource("t", ("d", "t"), {"shard": "d"}, is_stored=False)
    found = planned(
        _changes(ADD) or (), new, list(model.sources.values()), model.columns, lambda: True
    )
    assert (found.executed, found.waits) == ((), "")
