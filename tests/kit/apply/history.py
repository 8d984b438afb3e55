"""Random histories that a server accepts, and their final rows, which every way of applying must produce.

accounts    primary key, a unique number with NULLs, a unique text without case
words       its primary key is a text without case, whose trailing blanks do not count
bag         no key: equal rows differ only in number
p, c        c refers to p, ON DELETE CASCADE: a child deleted with its parent has no record
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from millrace.drivers.mysql.actions import Action, Actions
from millrace.drivers.mysql.catalog import (
    CatalogColumn,
    CatalogTable,
    ForeignKey,
    Inventory,
    UniqueKey,
)
from millrace.schemas.gtid import Flavour
from millrace.schemas.table.structure import Column, TableSchema
from tests.kit.apply.folds import general_fold
from tests.kit.apply.tables import ACCOUNTS_SQL, accounts, integer, table, text
from tests.kit.apply.topic import RecordStream

Row = tuple[object, ...]
IDS = 12  # sparse enough that records fall into several groups, dense enough that they meet
SQL = (
    ACCOUNTS_SQL,
    "CREATE TABLE words (word VARCHAR(20) PRIMARY KEY, n INT)"
    " DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci",
    "CREATE TABLE bag (n INT, body VARCHAR(20)) DEFAULT CHARSET=utf8mb4",
    "CREATE TABLE p (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE c (id INT PRIMARY KEY, p INT,"
    " FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)",
)


def collated(value: object) -> object:
    """Equal for texts of ``_text`` that utf8mb4_general_ci compares as equal."""
    return value.rstrip(" ").lower().replace("é", "e") if isinstance(value, str) else value


class RefusedError(Exception):
    """A server would refuse this change or not find its row."""


@dataclass
class Tables:
    """The rows of all tables; changes are applied one by one, as a server does."""

    rows: dict[str, dict[object, Row]] = field(
        default_factory=lambda: {name: {} for name in ("accounts", "words", "p", "c")}
    )
    bag: Counter[Row] = field(default_factory=Counter)

    def copy(self) -> "Tables":
        """An independent copy."""
        return Tables({name: dict(rows) for name, rows in self.rows.items()}, Counter(self.bag))

    def apply(self, name: str, before: Row | None, after: Row | None) -> None:
        """Apply one change; RefusedError leaves the rows unchanged."""
        if name == "bag":
            if before is not None and not self.bag[before]:
                raise RefusedError
            self.bag -= Counter([before] if before is not None else [])
            self.bag += Counter([after] if after is not None else [])
            return
        rows = self.rows[name]
        left = dict(rows)
        if before is not None and left.pop(collated(before[0]), None) != before:
            raise RefusedError
        if after is not None:
            if collated(after[0]) in left or not self._is_free(name, after, left):
                raise RefusedError
            left[collated(after[0])] = after
        if name == "p" and before is not None and (after is None or after[0] != before[0]):
            children = [key for key, child in self.rows["c"].items() if child[1] == before[0]]
            if after is not None and children:
                raise RefusedError
            for key in children:
                del self.rows["c"][key]
        self.rows[name] = left

    def _is_free(self, name: str, after: Row, left: dict[object, Row]) -> bool:
        if name == "c":
            return after[1] is None or after[1] in self.rows["p"]
        unique = (1, 2) if name == "accounts" else ()
        return not any(
            after[column] is not None and collated(other[column]) == collated(after[column])
            for other in left.values()
            for column in unique
        )

    def sorted(self, name: str) -> list[Row]:
        """Rows of a table as ``SELECT`` returns them, in Python's sort order."""
        found = list(self.bag.elements()) if name == "bag" else list(self.rows[name].values())
        return sorted(found, key=repr)


Change = tuple[str, Row | None, Row | None]


@dataclass
class History:
    """``changes[seq]`` is the record of this seq in the stream; ``tables`` are the rows after all changes."""

    stream: RecordStream
    tables: Tables = field(default_factory=Tables)
    changes: dict[int, Change] = field(default_factory=dict)


def schemas(database: str) -> dict[str, TableSchema]:
    """The tables' structures."""
    return {
        "accounts": accounts(database),
        "words": table(
            database, "words", text("word", nullable=False), integer("n", nullable=True)
        ),
        "bag": table(database, "bag", integer("n", nullable=True), text("body"), key=()),
        "p": table(database, "p", integer("id"), integer("v", nullable=True)),
        "c": table(database, "c", integer("id"), integer("p", nullable=True)),
    }


def make_history(
    database: str, *, seed: int, steps: int, about: str = "", flavour: Flavour = Flavour.MYSQL
) -> History:
    """A valid history, the same for the same arguments. ``about`` is one of the tables, or all."""
    return make_sharded_history((database,), seed=seed, steps=steps, about=about, flavour=flavour)[
        0
    ]


def make_sharded_history(
    databases: Sequence[str],
    *,
    seed: int,
    steps: int,
    about: str = "",
    flavour: Flavour = Flavour.MYSQL,
) -> tuple[History, list[Tables]]:
    """The same over several databases, and the rows of each. The history has those of the first one."""
    chance = random.Random(seed)
    history = History(RecordStream(flavour))
    shards = [Shard(history, chance, schemas(database), Tables()) for database in databases]
    history.tables = shards[0].tables
    for _ in range(steps):
        shard = chance.choice(shards) if len(shards) > 1 else shards[0]
        chance.choice(_STEPS[about])(chance, shard.tables, shard.change)
    history.stream.commit()
    return history, [shard.tables for shard in shards]


@dataclass
class Shard:
    """One database of a history."""

    history: History
    chance: random.Random
    schemas: dict[str, TableSchema]
    tables: Tables

    def change(self, name: str, before: Row | None, after: Row | None) -> None:
        """A change and its record, if a server accepts it."""
        try:
            self.tables.apply(name, before, after)
        except RefusedError:
            return
        history, made = self.history, self.schemas[name]
        names = [column.name for column in made.columns]
        left = dict(zip(names, before, strict=True)) if before else {}
        right = dict(zip(names, after, strict=True)) if after else {}
        if before is None:
            history.stream.insert(made, right)
        elif after is None:
            history.stream.delete(made, left)
        else:
            history.stream.update(made, left, right)
        history.changes[history.stream.seq] = (name, before, after)
        drawn = self.chance.random()
        if drawn < 0.2:
            history.stream.commit()
        elif drawn < 0.25:
            history.stream.pause()


Make = Callable[[str, Row | None, Row | None], None]


def _text(chance: random.Random) -> str:
    """A letter, large or small, with trailing blanks or an accent."""
    if chance.random() < 0.02:
        return chance.choice("éÉ")
    letter = chance.choice("abcdefgh")
    return chance.choice((letter, letter.upper(), letter + "  "))


def _same_text(chance: random.Random, before: str) -> str:
    """Another text that is equal for the server."""
    return chance.choice(
        (before.lower(), before.upper(), before.strip(" "), before.strip(" ") + " ")
    )


def _number(chance: random.Random) -> int | None:
    number = chance.randrange(IDS)
    return number or None


def _account(chance: random.Random, key: int) -> Row:
    mail = None if chance.random() < 0.3 else _text(chance)
    return (key, _number(chance), mail, chance.randint(0, 9))


def _any_account(chance: random.Random, tables: Tables, make: Make) -> None:
    key = chance.randint(1, IDS)
    before = tables.rows["accounts"].get(key)
    if before is None or chance.random() < 0.1:
        make("accounts", before, _account(chance, chance.randint(1, IDS) if before else key))
    elif chance.random() < 0.3:
        make("accounts", before, None)
    else:
        make(
            "accounts", before, chance.choice(((*before[:3], 1), (key, *_account(chance, key)[1:])))
        )


def _two_accounts(chance: random.Random, tables: Tables) -> tuple[Row, Row] | None:
    rows = sorted(tables.rows["accounts"].values(), key=repr)
    return tuple(chance.sample(rows, 2)) if len(rows) > 1 else None  # type: ignore[return-value]


def _swap_keys(chance: random.Random, tables: Tables, make: Make) -> None:
    if (both := _two_accounts(chance, tables)) is not None:
        one, two = both
        make("accounts", one, (IDS + 9, *one[1:]))
        make("accounts", two, (one[0], *two[1:]))
        make("accounts", (IDS + 9, *one[1:]), (two[0], *one[1:]))


def _swap_codes(chance: random.Random, tables: Tables, make: Make) -> None:
    if (both := _two_accounts(chance, tables)) is not None:
        one, two = both
        make("accounts", one, (one[0], None, *one[2:]))
        make("accounts", two, (two[0], one[1], *two[2:]))
        make("accounts", (one[0], None, *one[2:]), (one[0], two[1], *one[2:]))


def _delete_and_insert(chance: random.Random, tables: Tables, make: Make) -> None:
    before = tables.rows["accounts"].get(chance.randint(1, IDS))
    if before is not None:
        make("accounts", before, None)
        make("accounts", None, _account(chance, int(str(before[0]))))


def _word(chance: random.Random, tables: Tables, make: Make) -> None:
    word = _text(chance)
    before = tables.rows["words"].get(collated(word))
    if before is None:
        make("words", None, (word, _number(chance)))
    elif chance.random() < 0.5:
        make("words", before, None)
    else:
        moved = _text(chance) if chance.random() < 0.1 else _same_text(chance, str(before[0]))
        make("words", before, (moved, _number(chance)))


def _bag(chance: random.Random, tables: Tables, make: Make) -> None:
    there = tables.sorted("bag")
    before = chance.choice(there) if there and chance.random() < 0.5 else None
    after = (chance.choice((None, 1)), chance.choice((None, "a", "A")))
    make("bag", before, after if before is None or chance.random() < 0.5 else None)


def _family(chance: random.Random, tables: Tables, make: Make) -> None:
    name = chance.choice("ppccc")
    key = chance.randint(1, IDS)
    before = tables.rows[name].get(key)
    after: Row = (key, _number(chance))
    make(name, before, after if before is None or chance.random() < 0.6 else None)


def _parent(chance: random.Random, tables: Tables, make: Make) -> None:
    key = chance.randint(1, IDS)
    before = tables.rows["p"].get(key)
    moved = chance.randint(1, IDS) if chance.random() < 0.2 else key
    after: Row = (moved if before else key, _number(chance))
    make("p", before, after if before is None or chance.random() < 0.6 else None)


_ACCOUNTS = (*[_any_account] * 6, _swap_keys, _swap_codes, _delete_and_insert)
_STEPS = {
    "accounts": _ACCOUNTS,
    "words": (_word,),
    "bag": (_bag,),
    "c": (_family,),
    "p": (_parent,),
    "merged": (*_ACCOUNTS, *[_word] * 4),
    "": (*_ACCOUNTS, *[_word, _bag, _family, _family] * 2),
}


# ---- the target's tables as an inventory -------------------------------------------


def inventory(database: str) -> Inventory:
    """The inventory that ``read_inventory`` returns for ``SQL``."""
    keys = {
        "accounts": (("PRIMARY", "id"), ("code", "code"), ("mail", "mail")),
        "words": (("PRIMARY", "word"),),
        "bag": (),
        "p": (("PRIMARY", "id"),),
        "c": (("PRIMARY", "id"),),
    }
    found = {}
    for name, schema in schemas(database).items():
        columns = {column.name: _column(column) for column in schema.columns}
        unique = tuple(UniqueKey(index, (column,), True) for index, column in keys[name])
        found[database, name] = CatalogTable(database, name, columns, unique)
    actions = Actions(on_delete=Action.CASCADE)
    foreign = ForeignKey((database, "c"), ("p",), (database, "p"), ("id",), actions)
    folds = {"utf8mb4_general_ci": general_fold()}
    return Inventory(tables=found, foreign_keys=(foreign,), folds=folds)


def _column(column: Column) -> CatalogColumn:
    is_text = column.type.is_text
    kind = "varchar" if is_text else "int"
    charset, collation = ("utf8mb4", "utf8mb4_general_ci") if is_text else ("", "")
    return CatalogColumn(column.name, kind, kind, charset, collation, column.nullable, False)
