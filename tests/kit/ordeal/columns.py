"""Columns of generated tables: every type with extreme values, and parts of keys with few values, so that they meet."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from millrace.schemas.gtid import Flavour
from tests.kit.type_values import CHARSETS, TypeCase, every_case

Draw = Callable[[random.Random], str]
# MySQL's JSON whose text is not exact: docs/guarantees.md, "Not promised"
INEXACT = ("DATETIME", "DATE)", "TIME", "DECIMAL", "x'00FF'", "ST_Geom")
LARGE = ("REPEAT('ü'", "65536", "32768", "40000", "70000", "66000", "2000", "range(1500)")
LARGE_SHARE = 0.05  # of the draws that hit a large value
NULL_SHARE = 0.15
KEYS = 400  # values of a key's number: rows are hit again and again
_LETTERS = "aAáÁbBßsSeEéÉoOøØ"


@dataclass(frozen=True, slots=True)
class Column:
    """``draw`` returns an SQL expression. ``is_key``: DDL leaves it alone. ``is_generated``: it takes no value."""

    name: str
    ddl: str
    draw: Draw
    is_key: bool = False
    is_generated: bool = False

    @property
    def sql(self) -> str:
        """Its name, quoted."""
        return quoted(self.name)

    @property
    def definition(self) -> str:
        """Its name and type."""
        return f"{self.sql} {self.ddl}"


def quoted(name: str) -> str:
    """An identifier in SQL."""
    return "`" + name.replace("`", "``") + "`"


ONLY_MYSQL = {"gb18030"}  # a character set


def cases(flavour: Flavour) -> list[TypeCase]:
    """All types."""
    charsets = set(CHARSETS) if flavour is Flavour.MYSQL else set(CHARSETS) - ONLY_MYSQL
    return every_case(flavour, charsets)


def exact_values(case: TypeCase) -> tuple[str, ...]:
    """The values that arrive exactly."""
    if case.ddl != "JSON":
        return case.values
    return tuple(v for v in case.values if not any(word in v for word in INEXACT))


def of_case(name: str, case: TypeCase) -> Column:
    """A column of this type."""
    values = exact_values(case)
    small = [value for value in values if not any(word in value for word in LARGE)] or ["NULL"]

    def draw(chance: random.Random) -> str:
        if chance.random() < NULL_SHARE:
            return "NULL"
        return chance.choice(values if chance.random() < LARGE_SHARE else small)

    return Column(name, case.ddl, draw)


def number(chance: random.Random) -> str:
    """A key's number."""
    return str(chance.randrange(KEYS))


def number_or_null(chance: random.Random) -> str:
    """A number of a unique key that may be NULL."""
    return "NULL" if chance.random() < 0.3 else number(chance)


def text(chance: random.Random) -> str:
    """A text that others equal under a collation without case and accents, with blanks at its end."""
    letters = "".join(chance.choice(_LETTERS) for _ in range(chance.choice((1, 2, 2, 3))))
    return f"'{letters}{chance.choice(('', '', ' ', '  '))}'"


def among(values: Sequence[str]) -> Draw:
    """One of these expressions."""
    return lambda chance: chance.choice(values)


def formatted(sql: str) -> Draw:
    """A key's number in an expression."""
    return lambda chance: sql.format(number(chance))
