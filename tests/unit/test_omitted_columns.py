"""Which columns of partial row images must be generated, by what MariaDB 11.8.9 logs (mariadb-binlog -vv)."""

import pytest

from millrace.producer.convert.tables import are_generated
from millrace.schemas.gtid import Flavour
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TypeCode

INT, TEXT = ColumnType(TypeCode.LONG), ColumnType(TypeCode.BLOB, 2)


def _table(columns: str, key: tuple[int, ...]) -> TableSchema:
    """``i`` is an INT, ``t`` a TEXT; capital letters are NOT NULL."""
    made = (
        Column(f"c{at}", INT if letter in "iI" else TEXT, letter.islower())
        for at, letter in enumerate(columns)
    )
    return TableSchema("d", "t", tuple(made), key, (0,) * len(key))


def _present(bits: str) -> tuple[bool, ...]:
    return tuple(bit == "1" for bit in bits)


@pytest.mark.parametrize(
    ("columns", "key", "images", "is_generated"),
    [
        ("Iiii", (0,), "1101 1101", True),
        ("Iiii", (0,), "1101", True),
        ("iiii", (), "1001 1001", True),
        ("ttti", (), "1001", True),  # no key: only generated columns are ever left out
        ("Itii", (0,), "1101 1101", True),
        ("Itti", (0,), "1101 1101", True),  # NOBLOB would leave out the other TEXT, too
        ("Itti", (0,), "1001 1001", False),  # NOBLOB
        ("Itii", (0,), "1011", False),  # NOBLOB
        ("Ttii", (0,), "1011", False),  # NOBLOB keeps a TEXT of the key
        ("Iiii", (0,), "1000 1000", False),  # MINIMAL, or only the key is not generated
        ("Iiii", (0,), "1000", False),
        ("Iiii", (0,), "1101 0100", False),  # FULL_NODUP
        ("Iiii", (0,), "1101 1111", False),
        ("IiIi", (0,), "1101 1101", False),  # NOT NULL
        ("Iiii", (0,), "0111 0111", False),
    ],
)
def test_only_generated_columns_may_be_missing(
    columns: str, key: tuple[int, ...], images: str, is_generated: bool
) -> None:
    """Both images are without the same columns, and no setting of a session leaves out these plain ones."""
    table, present = _table(columns, key), [_present(bits) for bits in images.split()]
    assert are_generated(table, present, Flavour.MARIADB) == is_generated
    assert not are_generated(table, present, Flavour.MYSQL)


def test_structure_without_columns_keeps_its_key() -> None:
    """The key's indexes follow the columns, and the names of the others stay known."""
    table = _table("iIii", (1,)).without(_present("0110"))
    assert [column.name for column in table.columns] == ["c1", "c2"]
    assert (table.primary_key, table.omitted) == ((0,), ("c0", "c3"))
