"""The text that a server digests: one for each row, and the same on both sides."""

from dataclasses import replace

from millrace.consumer.compare.table import pair_of
from millrace.consumer.tables.digest import table_digest
from millrace.drivers.mysql.catalog import CatalogColumn, CatalogTable, UniqueKey
from millrace.schemas.gtid import Flavour

PRIMARY = UniqueKey("PRIMARY", ("id",), is_whole=True)


def column(
    name: str, base: str, *, charset: str = "", collation: str = "", nullable: bool = False
) -> CatalogColumn:
    """A column of this type."""
    return CatalogColumn(name, base, base, charset, collation, nullable, generated=False)


def table(*columns: CatalogColumn, keys: tuple[UniqueKey, ...] = (PRIMARY,)) -> CatalogTable:
    """A table of these columns."""
    return CatalogTable("d", "t", {one.name: one for one in columns}, keys)


def text_of(columns: tuple[CatalogColumn, ...], other: tuple[CatalogColumn, ...]) -> str:
    """The joined texts of a row."""
    names = [one.name for one in columns]
    row = table_digest(table(*columns), names, table(*other)).row
    return row.removeprefix("SHA2(CONCAT_WS(CAST('|' AS BINARY), ").removesuffix("), 224)")


def test_values_with_any_byte_have_their_length_before_them() -> None:
    """But the last: it ends where the row's text ends."""
    columns = (
        column("a", "varchar", charset="latin1"),
        column("n", "int"),
        column("b", "varbinary"),
        column("c", "char", charset="latin1"),
    )
    assert text_of(columns, columns) == "`n`, LENGTH(`a`), LENGTH(`b`), `a`, `b`, `c`"


def test_null_of_either_side_is_in_the_mask_of_both() -> None:
    """CONCAT_WS leaves NULL out, so the mask says which values are there."""
    strict = (column("a", "int"), column("b", "int", nullable=True))
    loose = (column("a", "int", nullable=True), column("b", "int"))
    mask = "(`a` IS NULL) * 1 + (`b` IS NULL) * 2, `a`, `b`"
    assert text_of(strict, loose) == text_of(loose, strict) == mask


def test_other_charset_is_compared_as_utf8mb4_hex_digits() -> None:
    """As in `consumer.tables.exact_text`."""
    latin, utf8 = ((column("a", "varchar", charset=charset),) for charset in ("latin1", "utf8mb4"))
    assert text_of(latin, utf8) == "HEX(CONVERT(`a` USING utf8mb4))"


def test_set_with_an_empty_label_is_compared_with_its_number() -> None:
    """No label and the label '' have the same text."""
    plain, empty = (
        (replace(column("a", "set", charset="latin1"), full_type=text),)
        for text in ("set('b','c')", "set('','b')")
    )
    assert text_of(plain, plain) == "`a`"
    number = "CONCAT(CAST(`a` AS UNSIGNED) = 0, ':', HEX(`a`))"
    assert [text_of(empty, plain), text_of(plain, empty), text_of(empty, empty)] == [number] * 3


def test_sum_is_an_xor_only_where_it_is_sound() -> None:
    """Two equal rows would cancel in an XOR, and MariaDB has XOR of numbers only."""
    keyed, bag = table(column("id", "int")), table(column("id", "int"), keys=())
    one, both = (Flavour.MYSQL,), (Flavour.MYSQL, Flavour.MARIADB)
    assert "BIT_XOR" in pair_of(keyed, keyed, flavours=one).target.digest.sums("TRUE")
    for left, flavours in ((bag, one), (keyed, both), (keyed, (Flavour.MARIADB,))):
        assert "BIT_XOR" not in pair_of(left, keyed, flavours=flavours).source.digest.sums("TRUE")


def test_rows_are_named_by_key_if_sides_sort_alike() -> None:
    """Another collation, another type or no such key: the table is one chunk, its rows are named by digest."""
    key = column("id", "varchar", charset="utf8mb4", collation="utf8mb4_bin")
    folded = column("id", "varchar", charset="utf8mb4", collation="utf8mb4_general_ci")
    assert pair_of(table(key), table(key)).is_keyed
    assert not pair_of(table(key), table(folded)).is_keyed
    assert not pair_of(table(column("id", "int")), table(column("id", "bigint"))).is_keyed
    assert not pair_of(table(key), table(key, keys=())).is_keyed
    hidden = replace(table(key).unique_keys[0], finds_rows=False)
    assert not pair_of(table(key), table(key, keys=(hidden,))).is_keyed
