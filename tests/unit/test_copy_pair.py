"""The SQL by which a copy reads and writes, from the types of both tables."""

from dataclasses import replace

import pytest

from millrace.consumer.copy import TablePair
from millrace.consumer.copy.chunk import document_insert
from millrace.consumer.copy.columns import CopyColumn, Kind, copy_column
from millrace.drivers.mysql.catalog import CatalogColumn, CatalogTable, Inventory
from millrace.errors import Fatal

INVENTORY = Inventory(allows_load_data=True)


def _column(type_text: str, charset: str = "", *, name: str = "v") -> CatalogColumn:
    base = type_text.split("(")[0].split()[0]
    return CatalogColumn(name, type_text, base, charset, "", True, False)


def _table(*columns: CatalogColumn, name: str = "t") -> CatalogTable:
    return CatalogTable("shop", name, {column.name: column for column in columns}, ())


def test_values_of_the_same_column_are_copied_as_bytes() -> None:
    """In any character set, and without a conversion on either side."""
    for column in (
        _column("varchar(9)", "sjis"),
        _column("text", "ucs2"),
        _column("longblob"),
        _column("bit(9)"),
        _column("datetime(6)"),
        _column("point"),
        _column("decimal(65,30)"),
    ):
        assert copy_column(column, column) == CopyColumn("v", "`v`")


def test_old_name_of_utf8_is_the_same_character_set() -> None:
    """And its characters are those of utf8mb4."""
    for ours, theirs in (("utf8", "utf8mb3"), ("utf8mb3", "utf8"), ("utf8", "utf8mb4")):
        made = copy_column(_column("text", ours), _column("text", theirs))
        assert made == CopyColumn("v", "`v`")
    made = copy_column(_column("text", "utf8mb4"), _column("text", "utf8mb3"))
    assert made == CopyColumn("v", "`v`", Kind.TEXT, "CONVERT(%s USING utf8mb4)")


@pytest.mark.parametrize(
    ("labels", "charset", "is_text"),
    [
        ("'a','b1'", "utf8mb4", True),
        ("'a','1'", "utf8mb4", False),
        ("'a',''", "latin1", False),
        ("'a'", "utf16", False),
        (r"'\n1'", "latin1", False),
        ("'x''1','o'", "latin1", True),
    ],
)
def test_labels_decide_how_their_numbers_are_loaded(
    labels: str, charset: str, *, is_text: bool
) -> None:
    """As text only if no label can be taken for a number."""
    for base in ("enum", "set"):
        column = _column(f"{base}({labels})", charset)
        made = copy_column(column, column)
        assert made is not None
        assert made.expression == "CAST(`v` AS UNSIGNED)"
        assert made.load == ("" if is_text else "CAST(%s AS UNSIGNED)")


def test_unknown_label_of_a_full_set_is_refused() -> None:
    """With 64 labels each number is a value."""
    full = ",".join(f"'m{number}'" for number in range(64))
    theirs = _column(f"set({full})", "latin1")
    assert copy_column(_column("set('m0','other')", "latin1"), theirs) is None
    assert copy_column(_column("set('m1','m0')", "latin1"), theirs) is not None


def test_statements_name_the_columns_of_both_sides() -> None:
    """MySQL ignores the case of a column's name. Names are quoted."""
    source = _table(_column("int", name="Id"), _column("float", name="f`x"), name="a b")
    target = _table(_column("double", name="F`X"), _column("int", name="id"))
    pair = TablePair.of(source, target, INVENTORY)
    assert pair.select == "SELECT `Id`, CAST(`f``x` AS DOUBLE) FROM `shop`.`a b`"
    assert pair.insert == b"INSERT INTO `shop`.`t` (`id`,`F``X`) VALUES "
    assert pair.load is not None
    assert b" CHARACTER SET binary " in pair.load
    assert pair.load.endswith(b" (`id`,`F``X`)")


def test_table_that_takes_no_load_has_an_insert_alone() -> None:
    """`local_infile` is off, or the table has a trigger."""
    table = _table(_column("int"))
    for inventory in (
        Inventory(allows_load_data=False),
        Inventory(allows_load_data=True, triggers={("shop", "t"): ("w",)}),
    ):
        assert TablePair.of(table, table, inventory).load is None


def test_table_of_another_kind_is_refused() -> None:
    """A history would be lost, or there would be none."""
    plain = _table(_column("int"))
    ends = ("row_start", "row_end")
    versioned = replace(plain, is_versioned=True, period=ends)
    for source, target in ((plain, versioned), (versioned, plain)):
        with pytest.raises(Fatal) as caught:
            TablePair.of(source, target, INVENTORY)
        assert caught.value.code == "MR-5013"
    pair = TablePair.of(versioned, versioned, INVENTORY)
    assert pair.select.endswith("`row_start`, `row_end` FROM `shop`.`t` FOR SYSTEM_TIME ALL")


def test_only_documents_that_need_it_are_written_alone() -> None:
    """The other values of the row are literals: labels as numbers, bytes and texts quoted."""
    columns = (
        _column("varbinary(9)", name="b"),
        _column("enum('x')", "utf8mb4", name="e"),
        _column("json", name="j"),
    )
    pair = TablePair.of(_table(*columns), _table(*columns), INVENTORY)
    assert document_insert(pair, b"\1a\x010\4[.5]") is None
    assert document_insert(pair, b"\x01'\x010\x06[1.50]") == (
        pair.insert + b"(_binary'\\'',0,JSON_REPLACE('[1.50]','$[0]',1.50))",
        1,
    )
    assert document_insert(pair, b"\xfb\x011\x06[1.50]") == (
        pair.insert + b"(NULL,1,JSON_REPLACE('[1.50]','$[0]',1.50))",
        0,
    )
