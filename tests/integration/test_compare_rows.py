"""Rows that a comparison prints, repairs and records: keys, long values, doubles, and SQL that others run."""

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from millrace.consumer.compare import Comparison, Ends, Rules, Work, compare_sets
from millrace.consumer.compare.show import RECORD_BYTES_MAX, note_of
from millrace.deploy.servers import DatabaseServer, sql
from tests.kit.apply.follower import following
from tests.kit.apply.local import endpoint_of
from tests.kit.waiting import PATIENCE_S


@pytest.fixture
def sides(
    mariadb_server: DatabaseServer, target_server: DatabaseServer, name: str
) -> Iterator[tuple[DatabaseServer, DatabaseServer]]:
    """A source and a target with an empty database, and a task that has applied everything."""
    mariadb_server.execute(f"CREATE DATABASE IF NOT EXISTS {name}")
    with following(mariadb_server, target_server, name):
        yield mariadb_server, target_server
    mariadb_server.execute(f"DROP DATABASE {name}")


@pytest.fixture
def both(sides: tuple[DatabaseServer, DatabaseServer], name: str) -> "Both":
    """See ``Both``."""
    return Both(*sides, name)


class Both:
    """Both servers and the database."""

    def __init__(self, source: DatabaseServer, target: DatabaseServer, name: str) -> None:
        self.source, self.target, self.name = source, target, name

    def execute(self, *statements: str) -> None:
        """Run the statements on both sides."""
        for server in (self.source, self.target):
            for statement in statements:
                server.execute(statement, db=self.name)

    def damage(self, *statements: str) -> None:
        """Run the statements on the target, without foreign key checks."""
        with sql.root_connection(self.target.socket, database=self.name) as session:
            for statement in ("SET foreign_key_checks=0", *statements):
                session.cursor().execute(statement)

    def compared(self, *, repairs: bool = False) -> Comparison:
        """Compare the database; the task has applied what the source has now."""
        moved = "UPDATE millrace.progress SET gtid_set = %s WHERE task = %s"
        self.target.execute(moved, (self.source.gtid_position(), self.name))
        ends = Ends(endpoint_of(self.source), endpoint_of(self.target), self.name, PATIENCE_S)
        rules = Rules(work=Work(repairs=repairs))
        return compare_sets(ends, lambda database, _: database == self.name, rules=rules)

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """The rows of the target."""
        return list(self.target.execute(query, db=self.name))


PARENT = (
    "id INT AUTO_INCREMENT PRIMARY KEY, code INT UNIQUE, at TIMESTAMP NULL, day DATE,"
    " v VARCHAR(40) CHARACTER SET utf8mb4"
)
CHILD = (
    "id INT PRIMARY KEY, parent INT, code INT,"
    " FOREIGN KEY (parent) REFERENCES parent (id) ON DELETE CASCADE,"
    " FOREIGN KEY (code) REFERENCES parent (code) ON UPDATE CASCADE ON DELETE CASCADE"
)


def test_printed_sql_repairs_in_any_session_without_a_cascade(both: Both) -> None:
    """Strict mode, another time zone and character set, keys that others refer to, and a zero in AUTO_INCREMENT."""
    zero = "SET SESSION sql_mode='NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES', time_zone='+00:00'"
    values = (
        "(0, 10, '2026-01-02 03:04:05', '0000-00-00', '日本'), (1, 11, NULL, NULL, 'it''s \\\\ %'),"
        " (2, 12, '2026-01-02 03:04:05', '2026-02-03', NULL)"
    )
    for server in (both.source, both.target):
        with sql.root_connection(server.socket, database=both.name) as session:
            session.cursor().execute(f"CREATE TABLE parent ({PARENT})")
            session.cursor().execute(f"CREATE TABLE child ({CHILD})")
            session.cursor().execute(zero)
            session.cursor().execute(f"INSERT INTO parent VALUES {values}")
            session.cursor().execute("INSERT INTO child VALUES (1, 1, 11), (2, 0, 10), (3, 2, 12)")
    both.damage(
        "UPDATE parent SET code = 13, v = 'x' WHERE id = 1",
        "DELETE FROM parent WHERE id = 0",
        "INSERT INTO parent VALUES (9, 19, NULL, NULL, NULL)",
    )
    children = both.rows("SELECT * FROM child ORDER BY id")
    found = both.compared()
    assert [one.what for one in found.differences] == ["different", "missing", "extra"]
    with sql.root_connection(both.target.socket) as session:
        session.cursor().execute("SET time_zone='+05:00', NAMES latin1")
        for one in found.differences:
            for statement in one.rows.repair.split("; "):
                session.cursor().execute(statement)
        with session.cursor() as cursor:
            cursor.execute("SELECT @@foreign_key_checks")
            assert cursor.fetchall() == ((1,),)
    assert both.compared().has_equal_rows
    assert both.rows("SELECT * FROM child ORDER BY id") == children


def test_printed_sql_repairs_values_of_another_time_zone(both: Both) -> None:
    """The target generates them in UTC again, so the column becomes a plain one. ``--repair`` says so and ends."""
    both.execute(
        "CREATE TABLE z (id INT PRIMARY KEY, ts TIMESTAMP NULL, d DATE AS (DATE(ts)) STORED)"
    )
    for server, zone in ((both.source, "+09:00"), (both.target, "+00:00")):
        with sql.root_connection(server.socket, database=both.name) as session:
            session.cursor().execute(f"SET time_zone = '{zone}'")
            session.cursor().execute("INSERT INTO z (id, ts) VALUES (1, FROM_UNIXTIME(1704036600))")
    with capture_logs() as logs:
        assert not both.compared(repairs=True).has_equal_rows
    (error,) = [entry["error"] for entry in logs if entry["event"] == "the row is not repaired"]
    assert error.code == "MR-5122"
    assert "ALTER TABLE" in error.fix
    (one,) = both.compared().differences
    with sql.root_connection(both.target.socket) as session:
        for statement in one.rows.repair.split("; "):
            session.cursor().execute(statement)
    assert both.compared().has_equal_rows


@pytest.fixture
def any_both(server: DatabaseServer, target_server: DatabaseServer, name: str) -> Iterator[Both]:
    """``Both`` with a source of each flavor."""
    server.execute(f"CREATE DATABASE IF NOT EXISTS {name}")
    with following(server, target_server, name):
        yield Both(server, target_server, name)
    server.execute(f"DROP DATABASE {name}")


@pytest.mark.both_flavours
def test_labels_beyond_a_double_are_repaired(any_both: Both) -> None:
    """A SET of 64 labels and a BIT(64), as values and in the key: one bit is a difference, and no other is written.

    ``set + 0`` is a DOUBLE on MySQL, and negative from the 64th label on.
    """
    both = any_both
    labels = ", ".join(f"'m{number}'" for number in range(64))
    values = [2**53, 2**53 + 1, 2**63, 2**63 + 1, 2**64 - 2]
    rows = ", ".join(f"({value}, {value}, {value})" for value in values)
    both.execute(
        f"CREATE TABLE wide (k SET({labels}) PRIMARY KEY, s SET({labels}), b BIT(64))",
        f"INSERT INTO wide VALUES {rows}",
    )
    both.damage(
        f"UPDATE wide SET s = {2**53}, b = {2**53} WHERE CAST(k AS UNSIGNED) = {2**53 + 1}",
        f"UPDATE wide SET s = {2**63} WHERE CAST(k AS UNSIGNED) = {2**63 + 1}",
        f"DELETE FROM wide WHERE CAST(k AS UNSIGNED) = {2**64 - 2}",
    )
    assert both.compared(repairs=True).repaired == 3
    assert both.compared().has_equal_rows
    numbers = ", ".join(f"CAST({name} AS UNSIGNED)" for name in "ksb")
    assert both.rows(f"SELECT {numbers} FROM wide ORDER BY k") == [(v, v, v) for v in values]


def test_swapped_unique_values_are_repaired(both: Both) -> None:
    """Each row needs the value that another wrong row has."""
    both.execute(
        "CREATE TABLE u (id INT PRIMARY KEY, code INT UNIQUE)",
        "INSERT INTO u VALUES (1, 10), (2, 20), (3, 30)",
    )
    both.damage(
        "UPDATE u SET code = NULL",
        "UPDATE u SET code = 20 WHERE id = 1",
        "DELETE FROM u WHERE id = 3",
        "UPDATE u SET code = 10 WHERE id = 2",
        "INSERT INTO u VALUES (7, 30)",
    )
    both.compared(repairs=True)
    assert both.compared().has_equal_rows


def test_repair_never_deletes_an_equal_row_for_a_stricter_key(both: Both) -> None:
    """The target treats two texts of the source as one. Its row that is right stays, the other is not repaired."""
    both.source.execute(
        "CREATE TABLE u (id INT PRIMARY KEY, v VARCHAR(9) COLLATE utf8mb4_bin UNIQUE)", db=both.name
    )
    both.target.execute(
        "CREATE TABLE u (id INT PRIMARY KEY, v VARCHAR(9) COLLATE utf8mb4_general_ci UNIQUE)",
        db=both.name,
    )
    both.source.execute("INSERT INTO u VALUES (1, 'a'), (2, 'A')", db=both.name)
    both.target.execute("INSERT INTO u VALUES (1, 'a')", db=both.name)
    with capture_logs() as logs:
        found = both.compared(repairs=True)
    assert (found.difference_count, found.repaired) == (1, 0)
    assert [entry["error"].code for entry in logs if "error" in entry] == ["MR-5122"]
    assert both.rows("SELECT * FROM u") == [(1, "a")]


def test_recorded_row_takes_a_repair_back(both: Both) -> None:
    """All of a row of long values is recorded, as the SET clause that restores it."""
    both.execute(
        "CREATE TABLE l (id INT PRIMARY KEY, t LONGTEXT, b LONGBLOB, f FLOAT, g GEOMETRY, e ENUM('x','y'))",
        "INSERT INTO l VALUES (1, REPEAT('new ', 90000), NULL, 0.1, NULL, 'x')",
    )
    damaged = (
        "t = CONCAT(REPEAT('日本', 50000), '''end'), b = REPEAT(x'00ff', 70000), f = 0.3, e = 'y',"
        " g = ST_GeomFromText('POINT(1 2)')"
    )
    both.damage(f"UPDATE l SET {damaged} WHERE id = 1")
    digest = "SELECT SHA2(CONCAT_WS('|', t, b, f, HEX(g), e), 224) FROM l"
    before = both.rows(digest)
    assert both.compared(repairs=True).repaired == 1
    assert both.rows(digest) != before
    ((row,),) = both.target.execute(
        "SELECT row_before FROM millrace.repair WHERE task = %s", (both.name,)
    )
    both.damage(f"UPDATE l SET {row} WHERE id = 1".replace("%", "%%"))
    assert both.rows(digest) == before


def test_row_beyond_the_limit_is_recorded_in_part(both: Both) -> None:
    """The record has the beginning, the length and a digest, and the repair is done."""
    length = RECORD_BYTES_MAX + 1
    both.execute(
        "CREATE TABLE l (id INT PRIMARY KEY, t LONGTEXT)", "INSERT INTO l VALUES (1, 'new')"
    )
    both.damage(f"UPDATE l SET t = REPEAT('o', {length})")
    found = both.compared(repairs=True)
    assert found.repaired == 1
    ((row,),) = both.target.execute(
        "SELECT row_before FROM millrace.repair WHERE task = %s", (both.name,)
    )
    assert str(row).startswith(f"`id`=1, `t`='{'o' * 40}' … ({length} bytes, digest ")
    (shown,) = found.differences
    assert shown.rows.target == row
    assert shown.rows.source == "`id`=1, `t`='new'"


@pytest.mark.both_flavours
def test_doubles_are_compared_by_value(both: Both) -> None:
    """The flavours print small values differently; a change of the last bit is still a difference."""
    values = [
        "-7.1850441006303285e-9",
        "0.00000000001595225235667419",
        "5e-324",
        "-0e0",
        "1e17",
        "12.5",
        "100",
        "0",
        "NULL",
    ]
    rows = ", ".join(f"({number}, {value})" for number, value in enumerate(values))
    keys = ", ".join(f"({value}, 1)" for value in values[:-2])
    both.execute(
        "CREATE TABLE d (id INT PRIMARY KEY, v DOUBLE)",
        f"INSERT INTO d VALUES {rows}",
        "CREATE TABLE k (v DOUBLE PRIMARY KEY, n INT)",
        f"INSERT INTO k VALUES {keys}",
    )
    assert both.compared().has_equal_rows
    both.damage(
        "UPDATE d SET v = -7.185044100630329e-9 WHERE id = 0", "UPDATE k SET n = 2 WHERE v = 12.5"
    )
    found = both.compared(repairs=True)
    assert {one.table.rpartition(".")[2] for one in found.differences} == {"d", "k"}
    assert found.difference_count == found.repaired
    assert both.compared().has_equal_rows


def test_values_that_print_the_same_text_are_different(both: Both) -> None:
    """No label, the label '' and a geometry's SRID; a repair writes each of them."""
    both.execute(
        "CREATE TABLE s (id INT PRIMARY KEY, e ENUM('', 'b'), s SET('', 'b'), g GEOMETRY, b BIT(9), f FLOAT)"
    )
    values = "(1, 1, 0, ST_GeomFromText('POINT(1 2)', 0), 1, 0.1), (2, 1, 1, NULL, 0, 0), (3, 2, 3, NULL, 0, 1)"
    both.execute(f"INSERT INTO s VALUES {values}")
    assert both.compared().has_equal_rows
    both.damage(
        "SET sql_mode=''",
        "UPDATE s SET e = 0, s = 1, g = ST_GeomFromText('POINT(1 2)', 4326) WHERE id = 1",
        "UPDATE s SET s = 0 WHERE id = 2",
        "UPDATE s SET s = 2, f = 1.0000001 WHERE id = 3",
    )
    found = both.compared(repairs=True)
    assert (found.difference_count, found.repaired) == (3, 3)
    second = next(one for one in found.differences if one.key == "2")
    assert "`s`=1" in second.rows.source
    assert "`s`=0" in second.rows.target
    assert both.rows("SELECT e + 0, s + 0 FROM s ORDER BY id") == [(1, 0), (1, 1), (2, 3)]
    assert both.compared().has_equal_rows


def test_extra_table_is_listed_with_the_reason_why_it_stays(both: Both) -> None:
    """A repair leaves it as it is."""
    both.target.execute("CREATE TABLE more (id INT PRIMARY KEY)", db=both.name)
    found = both.compared(repairs=True)
    (one,) = found.differences
    assert (one.what, found.repaired) == ("extra", 0)
    note = note_of(one)
    assert "never dropped" in note
    both.target.execute(note.partition("drop it: ")[2])
    assert both.compared().has_equal_rows
