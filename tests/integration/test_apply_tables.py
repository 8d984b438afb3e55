"""How apply finds rows on real targets: no key, text keys, hidden keys, periods, triggers."""

import pytest

from millrace.deploy.servers import DatabaseServer
from millrace.schemas.table.structure import Column, ColumnType, TypeCode
from tests.kit.apply.local import (
    LocalRecords,
    apply_task,
    backwards,
    ignore,
    run_once,
    started,
)
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import RecordStream
from tests.kit.binlog.session import session


def test_table_without_a_key_is_a_multiset(name: str, target_server: DatabaseServer) -> None:
    """Each update or deletion takes one of several equal rows; NULLs and case compare exactly."""
    target_server.execute(
        "CREATE TABLE notes (n INT, body VARCHAR(20), weight FLOAT) DEFAULT CHARSET=utf8mb4",
        db=name,
    )
    notes = table(
        name,
        "notes",
        integer("n", nullable=True),
        text("body"),
        Column("weight", ColumnType(TypeCode.FLOAT, 4), nullable=True),
        key=(),
    )
    stream = RecordStream()
    row = {"n": None, "body": "a", "weight": 0.1}
    for _ in range(4):
        stream.insert(notes, row)
    stream.insert(notes, row | {"body": "A"})
    stream.update(notes, row, row | {"n": 5, "body": None})
    stream.delete(notes, row)
    stream.delete(notes, {"n": 5, "body": None, "weight": 0.1})
    stream.commit()
    run_once(target_server, apply_task(name), stream)
    rows = target_server.execute(f"SELECT n, HEX(body) FROM {name}.notes ORDER BY 2")
    assert rows == [(None, "41"), (None, "61"), (None, "61")]


def test_number_never_matches_a_row_by_text_key(name: str, target_server: DatabaseServer) -> None:
    """Servers say that 05 and 5a equal 5, so such a row is found by all its columns, and one row is deleted."""
    target_server.execute("CREATE TABLE t (k VARCHAR(9) PRIMARY KEY, n INT)", db=name)
    target_server.execute("INSERT INTO t VALUES ('5', 1), ('05', 1), ('5a', 1), ('7', 1)", db=name)
    made, stream = table(name, "t", integer("k"), integer("n")), RecordStream()
    stream.delete(made, {"k": 5, "n": 1})
    stream.update(made, {"k": 7, "n": 1}, {"k": 7, "n": 2})
    stream.commit()
    run_once(target_server, apply_task(name), stream)
    rows = target_server.execute(f"SELECT k, n FROM {name}.t ORDER BY k")
    assert rows == [("05", 1), ("5a", 1), ("7", 2)]


def test_generated_invisible_primary_key_is_found(mysql_server: DatabaseServer) -> None:
    """MySQL adds `my_row_id` to a table without a key and may hide it from sessions."""
    database = "hidden_key"
    mysql_server.execute(f"CREATE DATABASE {database}")
    with session(mysql_server) as cursor:
        cursor.execute("SET sql_generate_invisible_primary_key = 1")
        cursor.execute(f"CREATE TABLE {database}.t (a INT)")
    made = table(database, "t", integer("my_row_id"), integer("a"))
    stream = RecordStream()
    for number in (1, 2, 3):
        stream.insert(made, {"my_row_id": number, "a": 0})
    stream.update(made, {"my_row_id": 2, "a": 0}, {"my_row_id": 2, "a": 5})
    stream.delete(made, {"my_row_id": 3, "a": 0})
    stream.commit()
    mysql_server.execute("SET GLOBAL show_gipk_in_create_table_and_information_schema = 0")
    try:
        run_once(mysql_server, apply_task(database), stream)
    finally:
        mysql_server.execute("SET GLOBAL show_gipk_in_create_table_and_information_schema = 1")
    assert mysql_server.execute(f"SELECT my_row_id, a FROM {database}.t") == [(1, 0), (2, 5)]
    mysql_server.execute(f"DROP DATABASE {database}")


@pytest.mark.parametrize("kind", ["PRIMARY KEY", "UNIQUE KEY `by``p` "])
def test_periods_without_overlaps_keep_their_order(
    mariadb_server: DatabaseServer, kind: str
) -> None:
    """Two periods of one id overlap without being equal: the first is deleted before the second is inserted."""
    database = "periods"
    mariadb_server.execute(f"CREATE DATABASE {database}")
    columns = "id INT, s DATE, e DATE, PERIOD FOR `p``q` (s, e)"
    mariadb_server.execute(
        f"CREATE TABLE t ({columns}, {kind} (id, `p``q` WITHOUT OVERLAPS))", db=database
    )
    days = [Column(name, ColumnType(TypeCode.DATE), nullable=False) for name in "se"]
    made, stream = table(database, "t", integer("id"), *days, key=(0, 1, 2)), RecordStream()
    for number in range(40):
        row = {"id": number, "s": "2020-01-01", "e": "2020-03-01"}
        stream.insert(made, row)
        stream.update(made, row, row | {"s": "2020-02-01", "e": "2020-04-01"})
        stream.insert(made, row | {"e": "2020-02-01"})
        stream.delete(made, row | {"s": "2020-02-01", "e": "2020-04-01"})
        stream.insert(made, row | {"s": "2020-02-01", "e": "2020-05-01"})
    stream.commit()
    task = f"periods{len(kind)}"
    applier = started(mariadb_server, apply_task(task, lanes=4))
    applier.process(LocalRecords(stream.values, lane_order=backwards), ignore)
    applier.close()
    question = "SELECT CAST(s AS CHAR), CAST(e AS CHAR), COUNT(*) FROM t GROUP BY s, e ORDER BY s"
    assert mariadb_server.execute(question, db=database) == [
        ("2020-01-01", "2020-02-01", 40),
        ("2020-02-01", "2020-05-01", 40),
    ]
    mariadb_server.execute(f"DROP DATABASE {database}")


def test_status_names_triggers_on_target_tables(name: str, target_server: DatabaseServer) -> None:
    """A few triggers are named, only those on tables that receive rows."""
    for which in ("t", "other"):
        target_server.execute(f"CREATE TABLE {which} (id INT PRIMARY KEY, n INT)", db=name)
        for number in range(4):
            target_server.execute(
                f"CREATE TRIGGER {which}{number} BEFORE INSERT ON {which} FOR EACH ROW SET NEW.n = 1",
                db=name,
            )
    stream = RecordStream()
    applier = started(target_server, apply_task(name))
    stream.commit()
    applier.process(LocalRecords(stream.values), ignore)
    assert applier.warning() is None
    stream.insert(table(name, "t", integer("id"), integer("n")), {"id": 1, "n": 0})
    stream.commit()
    applier.process(LocalRecords(stream.values[1:], 1), ignore)
    applier.close()
    warning = applier.warning()
    assert warning is not None
    assert warning.code == "MR-5018"
    assert warning.message == (
        f"triggers on the target: {name}.t.t0, {name}.t.t1, {name}.t.t2 and 1 more"
    )
