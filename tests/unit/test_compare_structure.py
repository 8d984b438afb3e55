"""Words for definitions: what two servers print for one definition is equal, and nothing else."""

import pytest

from millrace.consumer.compare.structure import Words, differences, same_collation
from millrace.schemas.gtid import Flavour

MYSQL, MARIADB = (Words(flavour, is_mixed=True) for flavour in (Flavour.MYSQL, Flavour.MARIADB))
# base type, default and EXTRA of MySQL, default of MariaDB: as both servers print them
DEFAULTS = [
    ("int", "1", "", "1"),
    ("int", "00007", "", "00007"),
    ("decimal", "1.50", "", "1.50"),
    ("double", "-2e30", "", "-2e30"),
    ("bit", "b'101'", "", "b'101'"),
    ("varchar", "", "", "''"),
    ("varchar", "NULL", "", "'NULL'"),
    ("varchar", 'it\'s \\ "1"', "", "'it''s \\\\ \"1\"'"),
    ("varchar", "current_timestamp", "", "'current_timestamp'"),
    ("binary", "0x61", "", "'a\\0\\0'"),
    ("datetime", "CURRENT_TIMESTAMP(3)", "DEFAULT_GENERATED", "current_timestamp(3)"),
    ("timestamp", "CURRENT_TIMESTAMP", "DEFAULT_GENERATED", "current_timestamp()"),
    ("varchar", "concat(_utf8mb4\\'a\\')", "DEFAULT_GENERATED", "concat('a')"),
    ("date", "2020-01-01", "", "'2020-01-01'"),
]


@pytest.mark.parametrize(("base", "of_mysql", "extra", "of_mariadb"), DEFAULTS)
def test_defaults_of_both_servers_are_equal(
    base: str, of_mysql: str, extra: str, of_mariadb: str
) -> None:
    """With and without quotes, escapes and parentheses."""
    one = MYSQL.default(of_mysql, base=base, extra=extra, is_nullable=False)
    other = MARIADB.default(of_mariadb, base=base, extra="", is_nullable=False)
    assert one == other
    assert one.startswith("DEFAULT ")


def test_different_defaults_stay_different() -> None:
    """No two of one type are taken for each other, nor is one for NULL or for none."""
    for words, at in ((MYSQL, 1), (MARIADB, 3)):
        seen = [
            words.default(row[at], base="varchar", extra=row[2], is_nullable=True)
            for row in DEFAULTS
            if row[0] != "binary"
        ]
        seen.append(words.default(None, base="varchar", extra="", is_nullable=True))
        seen.append(words.default(None, base="varchar", extra="", is_nullable=False))
        assert len(set(seen)) == len(seen), seen


@pytest.mark.parametrize(
    ("of_mysql", "of_mariadb"),
    [
        (("int", ""), ("int(11)", "")),
        (("int unsigned", ""), ("int(10) unsigned", "")),
        (("year", ""), ("year(4)", "")),
        (("int(5) unsigned zerofill", ""), ("int(5) unsigned zerofill", "")),
        (("json", ""), ("longtext", "utf8mb4_bin")),
        (("geomcollection", ""), ("geometrycollection", "")),
        (("varchar(9)", "utf8_bin"), ("varchar(9)", "utf8mb3_bin")),
        (("text", "utf8mb4_0900_as_cs"), ("text", "utf8mb4_uca1400_nopad_as_cs")),
        (("enum('A','b')", "latin1_bin"), ("enum('A','b')", "latin1_bin")),
    ],
)
def test_types_of_both_servers_are_equal(
    of_mysql: tuple[str, str], of_mariadb: tuple[str, str]
) -> None:
    """Each as its server prints it."""
    assert MYSQL.type_text(*of_mysql) == MARIADB.type_text(*of_mariadb)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("int", ""), ("bigint", "")),
        (("int(5) zerofill", ""), ("int(6) zerofill", "")),
        (("varchar(9)", "utf8mb4_bin"), ("varchar(10)", "utf8mb4_bin")),
        (("enum('a')", "utf8mb4_bin"), ("enum('A')", "utf8mb4_bin")),
        (("text", "utf8mb4_0900_ai_ci"), ("text", "utf8mb4_uca1400_ai_ci")),
        (("text", "utf8mb3_bin"), ("text", "utf8mb4_bin")),
        (("bit(1)", ""), ("bit(2)", "")),
        (("decimal(4,1)", ""), ("decimal(4,2)", "")),
    ],
)
def test_different_types_stay_different(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Within a flavor and across both."""
    for words in (MYSQL, MARIADB):
        assert words.type_text(*one) != words.type_text(*other)
    assert MYSQL.type_text(*one) != MARIADB.type_text(*other)


def test_json_is_only_a_longtext_between_two_flavours() -> None:
    """Two MySQL servers distinguish them."""
    words = Words(Flavour.MYSQL, is_mixed=False)
    assert words.type_text("json", "") == "json"
    assert same_collation("utf8mb4_bin") == "utf8mb4_bin"


def test_order_is_that_of_the_columns_of_both_sides() -> None:
    """A column of one side moves no other; names differ in case only."""
    source = {"column a": "int", "column B": "int", "column c": "int"}
    target = {"column x": "int", "column A": "int", "column b": "int"}
    assert [change[0] for change in differences(source, target, ["a", "B"])] == [
        "column c",
        "column x",
    ]
    moved = {"column b": "int", "column a": "int", "column c": "int"}
    assert list(differences(source, moved, list("aBc"))) == [("column order", "a, b, c", "b, a, c")]
