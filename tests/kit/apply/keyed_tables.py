"""Tables with keys of every type, alone and in pairs, filled with rows that the server makes from a number.

The expression of a column gives another value for each ``n`` below ``FEW``, and repeats for more in the types that have
fewer values.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from millrace.schemas.gtid import Flavour

FEW = 200
_LABELS = ",".join(f"'e{number}'" for number in range(250))
_MEMBERS = ",".join(f"'m{number}'" for number in range(16))
_MANY_MEMBERS = ",".join(f"'m{number}'" for number in range(60))
_CHARSETS = ("latin1", "ascii", "utf8mb3", "ucs2", "utf16", "gbk", "sjis", "cp1251")
_HEX = "UNHEX(LPAD(HEX(n), {0}, '0'))"

# definition of a column, and its value
TYPES: dict[str, tuple[str, str]] = {
    "int": ("INT", "n"),
    "int_unsigned": ("INT UNSIGNED", "n"),
    "smallint": ("SMALLINT", "n % 30000"),
    "bigint": ("BIGINT", "-n"),
    "bigint_unsigned": ("BIGINT UNSIGNED", "CAST(9223372036854775708 AS UNSIGNED) + n"),
    "decimal": ("DECIMAL(20,4)", "n + 0.25"),
    "float": ("FLOAT", "n * 0.25"),
    "double": ("DOUBLE", "n * 0.1"),
    "bit": ("BIT(33)", "n"),
    "year": ("YEAR", "1901 + n % 250"),
    "date": ("DATE", "'1900-01-01' + INTERVAL n % 36000 DAY"),
    "datetime": ("DATETIME", "'1990-01-01' + INTERVAL n * 7 SECOND"),
    "datetime6": ("DATETIME(6)", "'1990-01-01' + INTERVAL n * 7 MICROSECOND"),
    "timestamp": ("TIMESTAMP(3) DEFAULT CURRENT_TIMESTAMP(3)", "'1990-01-01' + INTERVAL n SECOND"),
    "time": ("TIME", "SEC_TO_TIME(n)"),
    "time6": ("TIME(6)", "SEC_TO_TIME(n * 0.000007)"),
    "binary": ("BINARY(8)", _HEX.format(16)),
    "varbinary": ("VARBINARY(20)", _HEX.format(8)),
    "char": ("CHAR(20)", "CONCAT('k', n)"),
    "varchar": ("VARCHAR(20)", "CONCAT('k', n)"),
    "general_ci": ("VARCHAR(20) COLLATE utf8mb4_general_ci", "CONCAT('k', n)"),
    "text_bin": ("VARCHAR(20) COLLATE utf8mb4_bin", "CONCAT('k', n)"),
    **{
        charset: (f"VARCHAR(20) CHARACTER SET {charset}", "CONCAT('k', n)") for charset in _CHARSETS
    },
    "enum": (f"ENUM({_LABELS})", "1 + n % 250"),
    "enum_latin1": (f"ENUM({_LABELS}) CHARACTER SET latin1", "1 + n % 250"),
    "enum_ucs2": (f"ENUM({_LABELS}) CHARACTER SET ucs2", "1 + n % 250"),
    "set": (f"SET({_MEMBERS})", "n % 65536"),
    "set_latin1": (f"SET({_MEMBERS}) CHARACTER SET latin1", "n % 65536"),
    "set_many": (f"SET({_MANY_MEMBERS})", "n << 40 | 1"),
}
OWN_TYPES = {
    Flavour.MYSQL: {"ai_ci": ("VARCHAR(20) COLLATE utf8mb4_0900_ai_ci", "CONCAT('k', n)")},
    Flavour.MARIADB: {
        "uca1400": ("VARCHAR(20) COLLATE uca1400_ai_ci", "CONCAT('k', n)"),
        "uuid": ("UUID", "CONCAT(LPAD(HEX(n), 8, '0'), '-0000-1000-8000-', LPAD(HEX(n), 12, '0'))"),
        "inet6": ("INET6", f"INET6_NTOA({_HEX.format(32)})"),
        "inet4": ("INET4", "INET_NTOA(n)"),
    },
}
BRIEF = ("int", "varchar", "enum", "set", "datetime6", "float", "bit", "latin1")  # one of a kind
_FEW_VALUES = ("year", "enum", "enum_latin1", "enum_ucs2")  # no key alone


@dataclass(frozen=True, slots=True)
class KeyedTable:
    """``rows``: the SELECT list that makes a row of ``columns`` ("": all) from ``n``.

    ``w``: an INT beside the key, 0 at first.
    """

    name: str
    create: str
    rows: str
    columns: str = ""

    def fill(self, numbers: str) -> str:
        """INSERT of the rows of these numbers, a query of ``n``. Some types have fewer values."""
        return f"INSERT IGNORE INTO {self.name} {self.columns} SELECT {self.rows} FROM ({numbers}) AS source"


def keyed_tables(flavour: Flavour, *, is_brief: bool = False) -> Iterator[KeyedTable]:
    """A table for each type alone, before and after an INT, and in pairs; then keys of other forms.

    The brief ones are few types, and of these the first one alone before an INT and in a pair.
    """
    types = TYPES | OWN_TYPES[flavour]
    if is_brief:
        types = {name: types[name] for name in BRIEF}
    fronts = BRIEF[:1] if is_brief else types.keys()
    for name, (ddl, value) in types.items():
        if name not in _FEW_VALUES:
            yield _table(f"one_{name}", f"v {ddl} NOT NULL, PRIMARY KEY (v)", value)
        if name in fronts:
            columns = f"v {ddl} NOT NULL, i INT, PRIMARY KEY (v, i)"
            yield _table(f"front_{name}", columns, _few(value), "n")
        yield _table(
            f"rear_{name}", f"i INT, v {ddl} NOT NULL, j INT, PRIMARY KEY (i, v, j)",
            "n % 7", value, "n",
        )  # fmt: skip
    names = list(types)
    for first, second in zip(names, [*names[5:], *names[:5]], strict=True):
        if first not in fronts:
            continue
        columns = f"v {types[first][0]} NOT NULL, u {types[second][0]} NOT NULL, i INT"
        yield _table(
            f"pair_{first}_{second}",
            f"{columns}, PRIMARY KEY (v, u, i)",
            _few(types[first][1]),
            _few(types[second][1]),
            "n",
        )
    yield from _forms(flavour)


def _few(value: str) -> str:
    """The same expression with 100 values."""
    return re.sub(r"\bn\b", "(n % 100)", value)


def _table(name: str, columns: str, *values: str) -> KeyedTable:
    rows = ", ".join((*values, "0"))
    create = f"CREATE TABLE {name} ({_with_w(columns)})"
    return KeyedTable(name, create, rows)


def _with_w(columns: str) -> str:
    """``w`` follows the columns and comes before the keys."""
    places = [columns.find(f", {word}") for word in ("PRIMARY KEY (", "UNIQUE ")]
    at = min(place for place in places if place >= 0)
    return f"{columns[:at]}, w INT{columns[at:]}"


def _forms(flavour: Flavour) -> Iterator[KeyedTable]:
    yield _table(
        "downward", "a INT, b VARCHAR(20), PRIMARY KEY (a DESC, b)", "n % 9", "CONCAT('k', n)"
    )
    yield _table("unique_only", "a INT NOT NULL, b INT NOT NULL, UNIQUE KEY u (a, b)", "n % 9", "n")
    yield _table(
        "nullable",
        "a INT NOT NULL, b INT, UNIQUE KEY n (b), UNIQUE KEY u (a)",
        "n",
        "IF(n % 2, n, NULL)",
    )
    yield _table(
        "prefix",
        "a INT NOT NULL, b VARCHAR(30), PRIMARY KEY (a), UNIQUE KEY p (b(12))",
        "n",
        "CONCAT('k', n)",
    )
    hidden = "INVISIBLE" if flavour is Flavour.MYSQL else "IGNORED"
    yield _table(
        "hidden",
        f"a INT NOT NULL, b INT NOT NULL, UNIQUE KEY z (b), UNIQUE KEY a (a) {hidden}",
        "n",
        "n",
    )
    if flavour is Flavour.MARIADB:  # it keeps a key over more than 3,072 bytes as a hash
        yield _table(
            "hashed",
            "a VARCHAR(3000) NOT NULL, b INT NOT NULL, UNIQUE KEY z (b), UNIQUE KEY a (a)",
            "CONCAT('k', n)",
            "n",
        )
    wide = [f"c{number}" for number in range(16)]
    yield _table(
        "wide",
        f"{', '.join(f'{name} INT' for name in wide)}, PRIMARY KEY ({', '.join(wide)})",
        *("n % 3" for _ in wide[1:]),
        "n",
    )
    if flavour is Flavour.MYSQL:  # MariaDB has no generated column that is NOT NULL
        columns = "a INT NOT NULL, g INT AS (a * 2) STORED NOT NULL, w INT, UNIQUE KEY g (g)"
        yield KeyedTable("computed", f"CREATE TABLE computed ({columns})", "n, 0", "(a, w)")
