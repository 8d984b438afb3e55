"""The converter records statements, and filters them and rows by table."""

import struct

import pytest

from millrace.errors import Fatal
from millrace.schemas.documents import TableFilter
from millrace.schemas.record.control import DdlRecord
from millrace.schemas.record.record import RowRecord
from millrace.schemas.sql.statement import Kind
from tests.kit.binlog.builder import BinlogBuilder
from tests.kit.capture.converter import (
    convert,
    mysql_progress,
)


@pytest.mark.parametrize("pattern", ["shop.*", "Shop.*", "SHOP.T"])
def test_filters_ignore_case_on_a_case_folding_source(pattern: str) -> None:
    """lower_case_table_names: rows are logged in lower case, a statement as it was written."""
    builder = BinlogBuilder()
    builder.transaction(1, 7, "t", [(1, "a")])
    statements = ["TRUNCATE TABLE Shop.T", "ALTER TABLE t ADD c INT", "DROP TABLE SHOP.t"]
    for number, sql in enumerate(statements, 2):
        builder.gtid(number)
        builder.query(sql)
    builder.gtid(9)
    builder.query("ALTER DATABASE SHOP CHARACTER SET latin1", database="")
    wanted = TableFilter(include=(pattern,), exclude=("Shop.u",))
    run = convert(builder, filter=wanted, folds_names=True)
    assert [record.statement.sql for record in run.statements()] == [
        *statements,
        "ALTER DATABASE SHOP CHARACTER SET latin1",
    ]
    assert len(run.rows()) == 1
    builder.transaction(10, 8, "u", [(1, "a")])
    assert len(convert(builder, filter=wanted, folds_names=True).rows()) == 1
    exact = convert(builder, filter=wanted).records()
    assert len(exact) < 5


def test_statement_about_unpublished_tables_too_is_kept_as_unknown() -> None:
    """The target may keep the other tables, so an operator decides. An unknown statement may concern any table."""
    wanted = {
        "DROP TABLE t, crm.b": Kind.UNKNOWN,
        "RENAME TABLE crm.a TO t": Kind.UNKNOWN,
        "DROP TABLE crm.b, crm.c": None,
        "DROP TABLE t, u": Kind.DROP_TABLE,
        "FROBNICATE crm.b": Kind.UNKNOWN,
        "SET STATEMENT a = 1 FOR TRUNCATE crm.b": None,
    }
    builder = BinlogBuilder()
    for number, sql in enumerate(wanted, 1):
        builder.gtid(number)
        builder.query(sql, database="crm" if sql.startswith("FROB") else "shop")
    run = convert(builder, filter=TableFilter(include=("shop.*",)))
    found = {record.statement.sql: record.statement.kind for record in run.statements()}
    assert found == {sql: kind for sql, kind in wanted.items() if kind is not None}


def test_record_of_mixed_statement_names_excluded_table() -> None:
    """The record of a RENAME from an excluded to an included table says why apply must not execute it."""
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("RENAME TABLE legacy.t TO t")
    builder.gtid(2)
    builder.query("DROP TABLE t, legacy.a, legacy.b, legacy.a", status=b"\x7e\0")
    run = convert(builder, filter=TableFilter(include=("shop.*",)))
    rename, drop = run.statements()
    assert rename.statement.kind == drop.statement.kind == "unknown"
    assert (
        rename.statement.session["in_doubt"] == "names legacy.t, which the capture task leaves out"
    )
    assert drop.statement.session["in_doubt"].endswith(
        "; names legacy.a, legacy.b, which the capture task leaves out"
    )


@pytest.mark.parametrize(
    ("tables", "database", "seq", "is_warned"),
    [
        (TableFilter(("shpo.*",)), "shop", 0, True),
        (TableFilter(("shpo.*",)), "mysql", 0, False),
        (TableFilter(("shop.*",)), "shop", 0, False),
        (TableFilter(("shpo.*",)), "shop", 5, False),
        (TableFilter(hidden="shop.t"), "shop", 0, False),
    ],
    ids=["no match", "the server's own table", "match", "a topic with rows", "heartbeats"],
)
def test_filter_without_match_is_reported(
    tables: TableFilter, database: str, seq: int, *, is_warned: bool
) -> None:
    """The warning names an excluded table; it comes only while the topic has never had a row."""
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("BEGIN")
    builder.map_shop_table("t", table_id=7, database=database)
    builder.insert(7, [(1, "a")])
    builder.xid()
    converter = convert(builder, filter=tables, progress=mysql_progress("", seq=seq)).converter()
    assert converter.filter_warning == ""
    had_caught_up = converter.is_caught_up
    converter.next_batch(rows_max=100, bytes_max=1 << 20, timeout_s=600)
    assert (had_caught_up, converter.is_caught_up) == (False, True)
    assert ("such as shop.t" in converter.filter_warning) is is_warned


def test_system_tables_are_never_published() -> None:
    """They are not published even if an include names them."""
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("BEGIN")
    builder.map_shop_table("user", table_id=7, database="mysql")
    builder.insert(7, [(1, "a")])
    builder.xid()
    assert convert(builder, filter=TableFilter(include=("mysql.*",))).rows() == []


def test_statement_becomes_a_record_in_order() -> None:
    """DDL has a seq, is last in its transaction and names its tables; account statements lose their text."""
    builder = BinlogBuilder()
    builder.transaction(1, 7, "t", [(1, "a")])
    builder.gtid(2)
    builder.query("ALTER TABLE t ADD c INT")
    builder.gtid(3)
    builder.query("CREATE USER x IDENTIFIED BY 'secret'")
    _, ddl, account = convert(builder).records()
    assert isinstance(ddl, DdlRecord)
    assert isinstance(account, DdlRecord)
    assert (ddl.statement.sql, ddl.statement.kind) == ("ALTER TABLE t ADD c INT", "alter_table")
    assert ddl.statement.tables == (("shop", "t"),)
    assert (ddl.source.seq, ddl.transaction.is_last, ddl.transaction.total_order) == (2, True, 1)
    assert "secret" not in account.statement.sql


def test_record_has_the_text_that_its_server_executed() -> None:
    """Executable comments are resolved by the version that wrote the file, and each file has its own."""
    for version, tables, sql in (
        ("9.7.4", ["a", "b"], "DROP TABLE a   , b"),
        ("5.7.44", ["a"], "DROP TABLE a"),
    ):
        builder = BinlogBuilder(version=version)
        builder.gtid(1)
        builder.query("DROP TABLE a /*!80000 , b */ /*M! , c */")
        (ddl,) = convert(builder).statements()
        assert [table for _, table in ddl.statement.tables] == tables
        assert ddl.statement.sql == sql


def test_table_with_a_password_is_recorded_without_it() -> None:
    """Apply must not execute what is left of the statement, so an operator decides."""
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("CREATE TABLE f (a int) ENGINE=FEDERATED CONNECTION='mysql://u:S3cr3t@h/d/t'")
    (ddl,) = convert(builder).statements()
    assert ddl.statement.kind == "unknown"
    assert ddl.statement.sql == "CREATE TABLE f …"
    assert "password" in ddl.statement.session["in_doubt"]


def test_doubtful_statement_is_recorded_as_unknown() -> None:
    """A later server has a new session variable: the variables after it are unread, so apply must block."""
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("ALTER TABLE t ADD c INT", status=b"\x7e\0")
    (ddl,) = convert(builder).statements()
    assert ddl.statement.kind == "unknown"
    assert "126" in ddl.statement.session["in_doubt"]


def test_statement_with_undecodable_names_is_kept() -> None:
    """Whether the filter admits them is unknown."""
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("TRUNCATE `a\\b`", status=b"\x04" + struct.pack("<HHH", 13, 13, 13))  # sjis
    (ddl,) = convert(builder, filter=TableFilter(include=("shop.é",))).statements()
    assert ddl.statement.kind == "unknown"


def test_create_select_is_one_transaction() -> None:
    """CREATE TABLE … SELECT in row format: the statement is the first unit of its transaction."""
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("BEGIN")
    builder.query("CREATE TABLE `t` (`id` int) START TRANSACTION")
    builder.map_shop_table("t", table_id=7)
    builder.insert(7, [(1, "a")])
    builder.xid()
    ddl, row = convert(builder).records()
    assert isinstance(ddl, DdlRecord)
    assert isinstance(row, RowRecord)
    assert [x.transaction.total_order for x in (ddl, row)] == [1, 2]
    assert [x.transaction.is_last for x in (ddl, row)] == [False, True]


def test_ddl_before_a_rollback_stays() -> None:
    """MariaDB logs the DROP of a failed CREATE OR REPLACE TABLE … SELECT so. With rows, it is unclear what stays."""
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("BEGIN")
    builder.query("DROP TABLE IF EXISTS t")
    builder.query("DROP TABLE IF EXISTS other.t")  # not published
    builder.query("ROLLBACK")
    builder.transaction(2, 7, "t", [(1, "a")])
    ddl, row = convert(builder, filter=TableFilter(include=("shop.*",))).records()
    assert isinstance(ddl, DdlRecord)
    assert ddl.transaction.is_last
    assert isinstance(row, RowRecord)
    builder.gtid(3)
    builder.query("BEGIN")
    builder.query("DROP TABLE IF EXISTS u")
    builder.map_shop_table("t", table_id=7)
    builder.insert(7, [(2, "b")])
    builder.query("ROLLBACK")
    with pytest.raises(Fatal) as caught:
        convert(builder).records()
    assert caught.value.code == "MR-6507"
