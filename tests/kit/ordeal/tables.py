"""Generated tables with keys of each kind, by a seed; and what writers and DDL know of a table."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from millrace.schemas.gtid import Flavour
from tests.kit.ordeal.columns import (
    Column,
    among,
    cases,
    formatted,
    number,
    number_or_null,
    of_case,
    quoted,
    text,
)
from tests.kit.type_values import TypeCase

CASCADES = ("ON DELETE CASCADE", "ON DELETE SET NULL", "ON DELETE RESTRICT")
EXTRAS_MAX = 4
LATE = "late"  # the prefix of tables that the filter admits later
_COLLATIONS = {
    Flavour.MYSQL: (
        "utf8mb4_general_ci",
        "utf8mb4_0900_ai_ci",
        "utf8mb4_unicode_ci",
        "latin1_swedish_ci",
        "utf8mb4_0900_as_cs",
        "utf8mb4_bin",
    ),
    Flavour.MARIADB: (
        "utf8mb4_general_ci",
        "utf8mb4_unicode_ci",
        "utf8mb4_uca1400_ai_ci",
        "latin1_swedish_ci",
        "utf8mb4_nopad_bin",
        "utf8mb4_unicode_nopad_ci",
    ),
}


@dataclass
class Table:
    """``tail``: keys and constraints, after the columns. ``options``: after the parenthesis.

    ``fixed``: DDL changes neither name nor columns. ``is_followed``: a foreign key follows its keys, which
    stay, because safe mode refuses a change of such a key (MR-5024).
    """

    name: str
    columns: list[Column]
    tail: tuple[str, ...] = ()
    options: str = ""
    fixed: bool = False
    is_followed: bool = False

    @property
    def sql(self) -> str:
        """Its name, quoted."""
        return quoted(self.name)

    @property
    def create(self) -> str:
        """CREATE TABLE."""
        parts = ", ".join([*(column.definition for column in self.columns), *self.tail])
        return f"CREATE TABLE {self.sql} ({parts}){self.options}"

    @property
    def written(self) -> list[Column]:
        """Columns that take values."""
        return [column for column in self.columns if not column.is_generated]

    @property
    def changed(self) -> list[Column]:
        """Columns that an UPDATE changes."""
        return (self.is_followed and self.extras) or self.written

    @property
    def keys(self) -> list[Column]:
        """Columns by which rows are chosen."""
        return [column for column in self.written if column.is_key] or self.written[:1]

    @property
    def is_late(self) -> bool:
        """Whether the filter admits it only later; no other table may refer to it."""
        return self.name.startswith(LATE)

    @property
    def extras(self) -> list[Column]:
        """Columns that DDL may change."""
        return [column for column in self.written if not column.is_key]


def key(name: str, ddl: str, draw: Callable[[random.Random], str] = number) -> Column:
    """A column of a key."""
    return Column(name, f"{ddl} NOT NULL", draw, is_key=True)


def generated(name: str, ddl: str) -> Column:
    """A generated column."""
    return Column(name, ddl, among(["NULL"]), is_key=True, is_generated=True)


Shape = Callable[[random.Random, Flavour], tuple[list[Column], tuple[str, ...], str]]


def _primary(ddl: str, draw: Callable[[random.Random], str] = number) -> Shape:
    return lambda *_: ([key("id", ddl, draw)], ("PRIMARY KEY (id)",), "")


def _text(chance: random.Random, flavour: Flavour) -> tuple[list[Column], tuple[str, ...], str]:
    collation = chance.choice(_COLLATIONS[flavour])
    ddl = f"VARCHAR(20) CHARACTER SET {collation.split('_')[0]} COLLATE {collation}"
    return [key("k", ddl, text)], ("PRIMARY KEY (k)",), ""


def _composite(
    chance: random.Random, flavour: Flavour
) -> tuple[list[Column], tuple[str, ...], str]:
    (words, *_), _, _ = _text(chance, flavour)
    columns = [key("a", "INT", among(["1", "2", "3", "-4"])), words]
    columns.append(key("d", "DATETIME(3)", formatted("'2026-01-01' + INTERVAL {0} * 7 MINUTE")))
    names = ["a", "k", "d"][: chance.choice((2, 3))]
    chance.shuffle(names)
    return columns, (f"PRIMARY KEY ({', '.join(names)})", "KEY (d)"), ""


def _computed(chance: random.Random, flavour: Flavour) -> tuple[list[Column], tuple[str, ...], str]:
    kind = chance.choice(("STORED", "VIRTUAL"))
    columns = [
        key("id", "INT"),
        Column("u", "INT", number_or_null, is_key=True),
        generated("g", f"INT AS (u * 3 % 1009) {kind}"),
    ]
    unique = chance.choice(("UNIQUE KEY (g)", "KEY (g)", "UNIQUE KEY (u, g)"))
    return columns, ("PRIMARY KEY (id)", unique), ""


def _computed_primary(
    chance: random.Random, flavour: Flavour
) -> tuple[list[Column], tuple[str, ...], str]:
    columns = [key("n", "INT"), generated("g", "INT AS (n * 3 % 1009) STORED")]
    if flavour is Flavour.MYSQL:
        return columns, ("PRIMARY KEY (g)",), ""
    return columns, ("UNIQUE KEY (g)",), ""  # MariaDB has no generated column in a primary key


def _uniques(chance: random.Random, flavour: Flavour) -> tuple[list[Column], tuple[str, ...], str]:
    columns = [
        key("id", "INT"),
        Column("u", "INT", number_or_null, is_key=True),
        Column("w", "VARCHAR(10) COLLATE utf8mb4_general_ci", text, is_key=True),
    ]
    return columns, ("PRIMARY KEY (id)", "UNIQUE KEY (u)", "UNIQUE KEY (w, u)"), ""


def _unique_null(
    chance: random.Random, flavour: Flavour
) -> tuple[list[Column], tuple[str, ...], str]:
    return [Column("u", "INT", number_or_null, is_key=True)], ("UNIQUE KEY (u)",), ""


def _unique_only(
    chance: random.Random, flavour: Flavour
) -> tuple[list[Column], tuple[str, ...], str]:
    return [key("u", "INT")], ("UNIQUE KEY (u)",), ""


def _prefix(chance: random.Random, flavour: Flavour) -> tuple[list[Column], tuple[str, ...], str]:
    return [key("t", "VARCHAR(100)", text)], ("PRIMARY KEY (t(2))",), ""


def _keyless(chance: random.Random, flavour: Flavour) -> tuple[list[Column], tuple[str, ...], str]:
    return [Column("n", "INT", among(["1", "2", "3", "NULL", "7"]), is_key=True)], (), ""


def _parted(chance: random.Random, flavour: Flavour) -> tuple[list[Column], tuple[str, ...], str]:
    ranges = ", ".join(f"PARTITION p{n} VALUES LESS THAN ({n * 150})" for n in range(3))
    options = chance.choice(
        (
            " PARTITION BY HASH (id) PARTITIONS 3",
            " PARTITION BY KEY (id) PARTITIONS 4",
            f" PARTITION BY RANGE (id) ({ranges}, PARTITION p9 VALUES LESS THAN MAXVALUE)",
        )
    )
    return [key("id", "INT")], ("PRIMARY KEY (id)",), options


def _checked(chance: random.Random, flavour: Flavour) -> tuple[list[Column], tuple[str, ...], str]:
    columns = [key("id", "INT"), Column("c", "INT", number, is_key=True)]
    return columns, ("PRIMARY KEY (id)", "CHECK (c <> 13)"), ""


SHAPES: dict[str, Shape] = {
    "int": _primary("INT"),
    "auto": _primary("BIGINT UNSIGNED AUTO_INCREMENT"),
    "text": _text,
    "composite": _composite,
    "computed": _computed,
    "computed primary": _computed_primary,
    "uniques": _uniques,
    "unique null": _unique_null,
    "unique only": _unique_only,
    "prefix": _prefix,
    "keyless": _keyless,
    "parted": _parted,
    "checked": _checked,
    "binary": _primary("VARBINARY(12)", formatted("UNHEX(LPAD(HEX({0} % 300), 6, '0'))")),
    "decimal": _primary("DECIMAL(12,3)", formatted("{0} / 8")),
    "moment": _primary("DATETIME(6)", formatted("'2026-01-01' + INTERVAL {0} * 1001 MICROSECOND")),
    "stamp": _primary("TIMESTAMP(2)", formatted("'2026-03-29 01:30:00' + INTERVAL {0} MINUTE")),
    "time": _primary("TIME(3)", formatted("SEC_TO_TIME({0} - 200)")),
    "bits": _primary("BIT(9)", formatted("{0} % 400")),
    "double": _primary("DOUBLE", formatted("{0} / 7e0")),
    "enum": _primary("ENUM('z','ü','a','B','é')", among(["'z'", "'ü'", "'a'", "'B'", "'é'"])),
    "char": _primary("CHAR(8) COLLATE utf8mb4_general_ci", text),
}


@dataclass
class Maker:
    """Tables by a seed. Each column type is used once before one is used again; so are the shapes."""

    flavour: Flavour
    chance: random.Random
    made: int = 0
    _shapes: list[str] = field(default_factory=list)
    _cases: list[TypeCase] = field(default_factory=list)
    _columns: int = 0

    def table(self, shape: str = "", *, prefix: str = "t") -> Table:
        """The next table, of this shape or of the next one."""
        if not shape:
            shape = self._next_shape()
        self.made += 1
        name = f"{prefix}{self.made} {shape}" if self.made % 5 == 0 else f"{prefix}{self.made}"
        columns, tail, options = SHAPES[shape](self.chance, self.flavour)
        extras = [self.column() for _ in range(self.chance.randint(1, EXTRAS_MAX))]
        if self.chance.random() < 0.2:  # columns of the key are not always the first ones
            columns = [*extras[:1], *columns, *extras[1:]]
        else:
            columns = [*columns, *extras]
        return Table(name, columns, tail, options)

    def family(self) -> list[Table]:
        """A parent with children of each kind of cascade, and a grandchild."""
        parent = self.table("int", prefix="parent")
        parent.fixed = True
        made = [parent]
        made += [self._child(parent, action) for action in CASCADES]
        made.append(self._child(made[1], CASCADES[0]))
        return made

    @property
    def copies(self) -> str:
        """The end of an ALTER TABLE that adds or drops a column.

        After several INSTANT ones, MySQL 9.7.4 under writes logs and returns cut values of a column whose prefix is the
        primary key, without any replication; its log then contradicts itself.
        """
        return ", ALGORITHM=COPY" if self.flavour is Flavour.MYSQL else ""

    def _child(self, parent: Table, action: str) -> Table:
        child = self.table("int", prefix="child")
        child.columns.append(Column("p", "INT", number_or_null, is_key=True))
        child.tail += (f"FOREIGN KEY (p) REFERENCES {parent.sql} (id) {action}",)
        child.fixed = parent.is_followed = True
        return child

    def column(self) -> Column:
        """A column of the next type, with a new name."""
        if not self._cases:
            self._cases = cases(self.flavour)
            self.chance.shuffle(self._cases)
        self._columns += 1
        return of_case(f"c{self._columns}", self._cases.pop())

    def _next_shape(self) -> str:
        if not self._shapes:
            self._shapes = list(SHAPES)
            self.chance.shuffle(self._shapes)
        return self._shapes.pop()
