"""The converter refuses events that could lose a row."""

import struct

import pytest

from millrace.errors import Fatal
from millrace.schemas.documents import TableFilter
from millrace.schemas.gtid import Flavour
from tests.kit.binlog.builder import SOURCE_UUID, BinlogBuilder
from tests.kit.capture.converter import (
    convert,
)


def _in_transaction(kind: int, body: bytes) -> BinlogBuilder:
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("BEGIN")
    builder.map_shop_table("t", table_id=7)
    builder.event(kind, body)
    builder.xid()
    return builder


def _with_query(text: str) -> BinlogBuilder:
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("BEGIN")
    builder.query(text)
    builder.xid()
    return builder


def _bare(kind: int, body: bytes) -> BinlogBuilder:
    builder = BinlogBuilder()
    builder.event(kind, body)
    return builder


def _rolled_back() -> BinlogBuilder:
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("BEGIN")
    builder.map_shop_table("t", table_id=7)
    builder.insert(7, [(1, "a")])
    builder.query("ROLLBACK TO `never set`")
    return builder


ROWS_HEAD = (7).to_bytes(6, "little") + b"\1\0" + b"\2\0"


IMAGE = b"\0" + (1).to_bytes(4, "little") + b"\1a"


@pytest.mark.parametrize(
    ("builder", "code"),
    [
        (_with_query("INSERT INTO t VALUES (1)"), "MR-6501"),
        (_with_query("CREATE TABLE x AS SELECT 1"), "MR-6501"),
        (_in_transaction(18, bytes(30)), "MR-6501"),
        (_in_transaction(99, bytes(4)), "MR-6502"),
        (_in_transaction(20, bytes(20)), "MR-6502"),
        (_bare(34, bytes(42)), "MR-6503"),
        (_in_transaction(30, ROWS_HEAD + b"\2\1" + IMAGE), "MR-6504"),
        (_in_transaction(39, bytes(30)), "MR-6505"),
        (_in_transaction(30, (8).to_bytes(6, "little") + b"\1\0\2\0\2\xff" + IMAGE), "MR-6506"),
        (_bare(30, ROWS_HEAD + b"\2\xff" + IMAGE), "MR-6506"),
        (_bare(16, bytes(8)), "MR-6506"),
        (_in_transaction(33, b"\0" + SOURCE_UUID + bytes(25)), "MR-6506"),
        (_rolled_back(), "MR-6507"),
        (_bare(164, bytes(17)), "MR-6509"),
        (_in_transaction(26, bytes(4)), "MR-6510"),
        (_bare(26, bytes(4)), "MR-6510"),
        (_in_transaction(30, ROWS_HEAD + b"\2\xff" + IMAGE[:-1]), "MR-6003"),
        (_in_transaction(30, ROWS_HEAD + b"\3\xff" + IMAGE), "MR-6003"),
        (_in_transaction(30, b"\7"), "MR-6003"),
        (_bare(33, bytes(10)), "MR-6003"),
        (_bare(2, bytes(5)), "MR-6003"),
        (_bare(33, b"\0" + SOURCE_UUID + bytes(25)), "MR-6003"),
        (_bare(42, b"\2\0\0" + b"\x02" + b"\2" * 16 + b"\4\2" + b"\6\2A"), "MR-6003"),
        # a tag with all 64 bits of its length set: negative as a signed number
        (_bare(42, b"\2\0\0\2" + b"\2" * 16 + b"\4\2\6" + b"\xff" * 9), "MR-6003"),
        (_in_transaction(19, bytes(20)), "MR-6003"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_event_that_could_lose_a_row_stops_with_its_code(builder: BinlogBuilder, code: str) -> None:
    """Nothing is skipped or guessed: the error names the event."""
    with pytest.raises(Fatal) as caught:
        convert(builder).records()
    assert caught.value.code == code
    assert "mysql-bin.000001:" in caught.value.context["coordinates"]


def test_decrypted_stream_of_an_encrypted_binlog_is_converted() -> None:
    """MariaDB marks the event as ignorable when its dump has decrypted the file."""
    builder = BinlogBuilder()
    builder.event(164, bytes(17), flags=0x80)
    builder.transaction(1, 7, "t", [(1, "a")])
    assert len(convert(builder).rows()) == 1


@pytest.mark.parametrize(
    ("sql", "database", "table"),
    [("INSERT INTO x.t VALUES (1)", "", "x.t"), ("CREATE TABLE y AS SELECT 1", "d", "d.y")],
)
def test_error_names_the_source_transaction_and_its_table(
    sql: str, database: str, table: str
) -> None:
    """MR-6501 has the GTID to start after and the table to reload, even without a default database."""
    builder = BinlogBuilder()
    builder.gtid(7)
    builder.query("BEGIN")
    builder.query(sql, database=database)
    with pytest.raises(Fatal) as caught:
        convert(builder).records()
    assert caught.value.code == "MR-6501"
    assert f"on {table}" in caught.value.message
    assert caught.value.context["gtid"].endswith(":7")
    assert "mysql-bin.000001:" in caught.value.full_message


# log_event.h and rows_event.h of the servers
ROWS_FLAGS = {Flavour.MYSQL: 0b1_1111, Flavour.MARIADB: 0b1000_1111}


@pytest.mark.parametrize("flavour", Flavour)
def test_each_flag_of_rows_is_recorded_or_refused(flavour: Flavour) -> None:
    """A flag that is not known may change the meaning of the rows."""
    for bit in range(16):
        builder = BinlogBuilder("9.7.4" if flavour is Flavour.MYSQL else "11.4.5-MariaDB")
        if flavour is Flavour.MYSQL:
            builder.gtid(1)
            builder.query("BEGIN")
        else:
            builder.event(162, struct.pack("<QIB", 1, 0, 0) + bytes(6))
        builder.map_shop_table("t", table_id=7)
        builder.insert(7, [(1, "a")], flags=1 << bit)
        builder.xid()
        run = convert(builder, flavour=flavour)
        if ROWS_FLAGS[flavour] >> bit & 1:
            (row,) = run.rows()
            assert row.source.place.flags == 1 << bit
        else:
            with pytest.raises(Fatal) as caught:
                run.rows()
            assert caught.value.code == "MR-6502"


def test_partial_images_of_an_excluded_table_are_counted() -> None:
    """No record misses a value, and the rows after them keep their numbers."""
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("BEGIN")
    builder.map_shop_table("other", table_id=8)
    builder.map_shop_table("t", table_id=7)
    head = (8).to_bytes(6, "little") + b"\0\0\2\0\2"
    builder.event(32, head + b"\1" + 2 * IMAGE[:5])  # DELETE, the first column only
    builder.event(31, head + b"\1\1" + 2 * IMAGE[:5])  # UPDATE
    builder.event(32, head + b"\2" + 3 * (b"\0" + IMAGE[5:]))  # DELETE, the second column only
    builder.insert(7, [(1, "a")])
    builder.xid()
    (row,) = convert(builder, filter=TableFilter(exclude=("shop.other",))).rows()
    assert (row.key, row.transaction.total_order) == ({"id": 1}, 7)
    with pytest.raises(Fatal, match=r"MR-6504 row images of shop.other without all columns: "):
        convert(builder).rows()
