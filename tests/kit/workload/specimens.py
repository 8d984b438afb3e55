"""One column of every type, with values at its extremes: the ledger's table ``specimens``.

Values are arguments of a PEP 249 cursor. Bytes in a text column are stored unchanged, valid or not.
A column's name hints at its type. Both servers accept all of them.
"""

import random
from collections.abc import Callable, Mapping

Draw = Callable[[random.Random], object]
WORDS = ("Ada", "Bjørn", "Эмма", "顾客", "O'Hara", "Zoë 🛒", "", " b ", "x\0y", '\\"')
NULL_SHARE = 0.12


def _one_of(*values: object) -> Draw:
    return lambda chance: chance.choice(values)


def _doubles(chance: random.Random) -> object:
    return chance.choice((0.0, 0.1, 5e-324, -1.7976931348623157e308, chance.gauss(0, 1e6)))


def _raw(length_max: int) -> Draw:
    return lambda chance: chance.randbytes(chance.randint(0, length_max))


def _text(chance: random.Random) -> object:
    return chance.choice(WORDS) * chance.choice((0, 1, 1, 2, 300))


def _document(chance: random.Random) -> object:
    word = chance.choice(("ü😀", "a", ""))
    return (
        f'{{"k": [{chance.randint(-(2**63), 2**63 - 1)}, null, true, "{word}", 1.5],'
        f' "n": {{"deep": [[], {{}}, {chance.randint(0, 9)}]}}}}'
    )


# column, type, values
SPECIMENS: tuple[tuple[str, str, Draw], ...] = (
    ("tiny", "TINYINT", _one_of(-128, 0, 127)),
    ("tiny_u", "TINYINT UNSIGNED", _one_of(0, 255)),
    ("small", "SMALLINT", _one_of(-32768, 32767)),
    ("medium", "MEDIUMINT", _one_of(-(2**23), -1, 2**23 - 1)),
    ("plain_u", "INT UNSIGNED", _one_of(0, 2**32 - 1)),
    ("big", "BIGINT", _one_of(-(2**63), -1, 2**63 - 1)),
    ("big_u", "BIGINT UNSIGNED", _one_of(0, 2**63, 2**64 - 1)),
    ("exact", "DECIMAL(38,10)", _one_of("9" * 28 + "." + "9" * 10, "-0.0000000001", "0", "-17.5")),
    ("single", "FLOAT", _one_of(0.1, -3.402823e38, 1.5, -0.0)),
    ("twice", "DOUBLE", _doubles),
    ("bits", "BIT(11)", _one_of(0, 1, 2047)),
    ("year_of", "YEAR", _one_of(1901, 2000, 2155)),
    ("kind", "ENUM('a','Ω','b,c')", _one_of("a", "Ω", "b,c")),
    ("kinds", "SET('x','ü','z')", _one_of("x", "x,ü,z", "z")),
    ("day", "DATE", _one_of("1000-01-01", "9999-12-31", "2024-02-29", "0000-00-00")),
    (
        "moment",
        "DATETIME(6)",
        _one_of("1000-01-01 00:00:00", "9999-12-31 23:59:59.999999", "0000-00-00 00:00:00"),
    ),
    (
        "stamp",
        "TIMESTAMP(3) NULL",
        _one_of("1970-01-01 00:00:01", "2038-01-19 03:14:06.987", "2026-03-29 01:30:00.5"),
    ),
    ("span", "TIME(2)", _one_of("-838:59:58.98", "838:59:58.25", "00:00:00", "-00:00:01")),
    ("name", "VARCHAR(40)", _one_of(*WORDS)),
    ("latin", "CHAR(12) CHARACTER SET latin1", _one_of("Zoë", b"\x81\x8d", "", "a")),
    ("cyrillic", "VARCHAR(20) CHARACTER SET cp1251", _one_of("Эмма", b"\x98", b"a\x98\xc0")),
    ("body", "TEXT", _text),
    ("lump", "BLOB", _raw(700)),
    ("seal", "VARBINARY(16)", _raw(16)),
    ("pad", "BINARY(5)", _raw(5)),
    ("doc", "JSON", _document),
)
COLUMNS = ", ".join(f"`{name}` {kind}" for name, kind, _ in SPECIMENS)


def specimen(chance: random.Random) -> Mapping[str, object]:
    """A value or NULL for every column."""
    return {
        name: None if chance.random() < NULL_SHARE else draw(chance) for name, _, draw in SPECIMENS
    }
