"""Tables of every form are copied on real servers, in small and in huge pieces."""

import random
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace

import pytest

from millrace.consumer.copy import Copied, Parts, TablePair, copy_chunk
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.catalog import read_inventory
from millrace.drivers.mysql.connection import connect
from millrace.schemas.documents import Tls, TlsMode
from millrace.schemas.gtid import Flavour
from tests.kit.apply.copying import ALL, SOURCE, TARGET, Copying, copying
from tests.kit.apply.local import endpoint_of

MIB = 1 << 20
PACKET_BYTES = 64 * MIB


@pytest.fixture
def copies(target_server: DatabaseServer) -> Iterator[Copying]:
    """Both databases on one server, whose sessions take large packets."""
    ((before,),) = target_server.execute("SELECT @@max_allowed_packet")
    target_server.execute(f"SET GLOBAL max_allowed_packet = {PACKET_BYTES}")
    with copying(target_server, target_server) as made:
        yield made
    target_server.execute(f"SET GLOBAL max_allowed_packet = {before}")


def _random_rows(copies: Copying, count: int) -> None:
    copies.create("CREATE TABLE t (id INT PRIMARY KEY, a LONGBLOB, b VARCHAR(200))")
    chance = random.Random(5)
    for number in range(count):
        raw = chance.randbytes(chance.choice([0, 1, 250, 251, 3000, 70000]))
        text = "".join(chance.choices("ab\t\n\\'\0日", k=chance.randrange(100)))
        copies.source.query("INSERT INTO t VALUES (%s, %s, %s)", (number, raw, text or None))
    copies.source.commit()


@pytest.mark.parametrize("bytes_max", [300, 5000, MIB])
@pytest.mark.parametrize("loads", [True, False], ids=["LOAD DATA", "INSERT"])
def test_rows_of_any_size_fit_through_buffers_of_any_size(
    copies: Copying, bytes_max: int, *, loads: bool
) -> None:
    """Values are larger than the buffers, and end at each of their borders."""
    _random_rows(copies, 60)
    copied = copies.copy("t", loads=loads, bytes_max=bytes_max)
    assert copied.rows == 60
    assert copies.are_equal("t")
    rows, theirs = copies.both("SELECT * FROM t ORDER BY id")
    assert rows == theirs
    assert copied.bytes > sum(len(str(row[2] or "")) for row in rows)


def test_row_of_several_packets_is_one_row(copies: Copying) -> None:
    """By both ways. A row that fills a packet exactly is followed by an empty one."""
    copies.create("CREATE TABLE t (id INT PRIMARY KEY, a LONGBLOB)")
    exact = 0xFFFFFF - 2 - 4  # without the id and the value's length
    for number, size in enumerate((exact, 3, 20 * MIB)):
        value = f"CONCAT(REPEAT(x'5C', {size - 3}), x'00090A')"
        copies.fill(f"INSERT INTO t VALUES ({number}, {value})")
    for loads in (True, False):
        assert copies.copy("t", loads=loads).rows == 3
        assert copies.are_equal("t")
        copies.target.query("TRUNCATE t")


@pytest.mark.parametrize("loads", [True, False])
def test_parts_of_one_result_are_committed_one_by_one(copies: Copying, *, loads: bool) -> None:
    """Each is about as large as asked for, and has whole rows; all that was written until then is committed."""
    copies.create("CREATE TABLE t (a VARBINARY(4000), b INT)")
    digits = "(SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4)"
    names = ", ".join(f"{digits} d{n}" for n in range(4))
    copies.fill(f"INSERT INTO t SELECT REPEAT(x'41', 2500), 7 FROM {names}")
    sizes: list[int] = []

    def commit(part: Copied) -> None:
        sizes.append(part.rows)
        copies.target.commit()
        seen = copies.servers[1].execute(f"SELECT COUNT(*) FROM {TARGET}.t")
        assert seen == [(sum(sizes),)]

    parts = Parts(100_000, commit)
    pair = copies.pair("t", loads=loads)
    last = copy_chunk(copies.source, copies.target, pair, ALL, bytes_max=50_000, parts=parts)
    copies.target.commit()
    assert sum(sizes) + last.rows == 5**4
    assert len(sizes) > 8
    assert max(sizes) < 100
    assert copies.are_equal("t")


@pytest.mark.parametrize("loads", [True, False])
def test_auto_increment_of_zero_stays_zero(copies: Copying, *, loads: bool) -> None:
    """MariaDB's LOAD DATA gives it a new number if another column of the row is SET."""
    labels = "ENUM('a', 'b') CHARACTER SET utf16"
    copies.create(f"CREATE TABLE t (a {labels}, id INT AUTO_INCREMENT PRIMARY KEY, b INT)")
    copies.fill("INSERT INTO t VALUES ('a', 0, 1), ('b', 7, 2), (NULL, -3, 3)")
    copies.copy("t", loads=loads)
    assert copies.are_equal("t")


@pytest.mark.parametrize("mode", ["as the server", "require-unverified"])
def test_memory_stays_small_with_and_without_tls(copies: Copying, mode: str) -> None:
    """Of a chunk of 40 MB. MySQL takes this password only over TLS."""
    if mode == "as the server":
        mode = "disabled" if copies.source.flavour is Flavour.MARIADB else "require-unverified"
    copies.create("CREATE TABLE t (id INT PRIMARY KEY, a VARBINARY(4000))")
    digits = "(SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4)"
    names = ", ".join(f"{digits} d{n}" for n in range(6))
    number = " + ".join(f"d{n}.d * {5**n}" for n in range(6))
    copies.fill(
        f"INSERT INTO t SELECT n, REPEAT(x'41', 2500) FROM (SELECT {number} n FROM {names}) q"
    )
    endpoint = replace(endpoint_of(copies.servers[0]), tls=Tls(TlsMode(mode)))
    source, target = connect(endpoint), connect(endpoint)
    pair = copies.pair("t")
    copy_chunk(source, target, pair, "id < 9")
    tracemalloc.start()
    try:
        copied = copy_chunk(source, target, pair, "id >= 9")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    target.commit()
    assert (copied.rows, copied.bytes > 39_000_000) == (5**6 - 9, True)
    assert peak < 5 * MIB
    assert copies.are_equal("t")
    source.close()
    target.close()


def test_generated_and_invisible_columns_are_copied_by_name(copies: Copying) -> None:
    """The target generates its own, and its columns may be in another order and more."""
    hidden = "INVISIBLE"
    copies.source.query(
        f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, h INT NOT NULL DEFAULT 3 {hidden},"
        " s INT AS (h * 2) STORED, v VARCHAR(9) AS (CONCAT('v', h)) VIRTUAL, p INT AS (h + 1))"
    )
    copies.target.query(
        f"CREATE TABLE t (p INT, more INT DEFAULT 8, v VARCHAR(9) AS (CONCAT('v', h)) VIRTUAL,"
        f" s INT AS (h * 2) STORED, H INT NOT NULL DEFAULT 3 {hidden}, id INT AUTO_INCREMENT PRIMARY KEY)"
    )
    copies.fill("INSERT INTO t (id, h) VALUES (0, 7), (-5, 8)")
    assert copies.copy("t").rows == 2
    assert copies.target.query("SELECT id, h, s, v, p, more FROM t ORDER BY id") == [
        (-5, 8, 16, "v8", 9, 8),
        (0, 7, 14, "v7", 8, 8),
    ]


def test_generated_primary_key_and_foreign_keys_do_not_hinder(copies: Copying) -> None:
    """A child is copied before its parent. MySQL's own invisible keys keep their values."""
    if copies.source.flavour is Flavour.MYSQL:
        for session in (copies.source, copies.target):
            session.query("SET SESSION sql_generate_invisible_primary_key=ON")
        copies.create("CREATE TABLE g (v INT)")
        copies.fill("INSERT INTO g VALUES (1), (2), (3)", "DELETE FROM g WHERE v = 1")
        assert copies.copy("g").rows == 2
        assert copies.target.query("SELECT my_row_id, v FROM g") == [(2, 2), (3, 3)]
    copies.create(
        "CREATE TABLE a (id INT PRIMARY KEY)",
        "CREATE TABLE b (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES a (id))",
    )
    copies.fill("INSERT INTO a VALUES (1)", "INSERT INTO b VALUES (1, 1)")
    assert [copies.copy(name).rows for name in "ba"] == [1, 1]


def test_table_with_a_trigger_takes_insert(copies: Copying) -> None:
    """A trigger may use the variables of LOAD DATA."""
    copies.create(
        "CREATE TABLE t (id INT PRIMARY KEY, e ENUM('a'), v VARCHAR(9) CHARACTER SET latin1)",
        also="CREATE TRIGGER w BEFORE INSERT ON t FOR EACH ROW SET @millrace0 = 1",
    )
    copies.fill("SET SESSION sql_mode=''", "INSERT INTO t VALUES (1, 'x', 'é'), (2, 1, NULL)")
    assert copies.pair("t").load is None
    assert copies.copy("t").rows == 2
    assert copies.are_equal("t")


def test_copy_of_nothing_writes_nothing(copies: Copying) -> None:
    """An empty table, and a condition without rows."""
    copies.create("CREATE TABLE t (id INT PRIMARY KEY)")
    copies.fill("INSERT INTO t VALUES (1)")
    assert copies.copy("t", "id > 1").rows == 0
    assert copies.target.query("SELECT COUNT(*) FROM t") == [(0,)]


def test_many_rows_are_several_statements_of_one_transaction(copies: Copying) -> None:
    """A rollback removes them all."""
    copies.create("CREATE TABLE t (id INT PRIMARY KEY)")
    digits = "(SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4)"
    names = ", ".join(f"{digits} d{n}" for n in range(6))
    number = " + ".join(f"d{n}.d * {5**n}" for n in range(6))
    copies.fill(f"INSERT INTO t SELECT {number} FROM {names}")
    pair = copies.pair("t")
    for loads in (True, False):
        assert (
            copy_chunk(
                copies.source, copies.target, pair if loads else replace(pair, load=None), ALL
            ).rows
            == 5**6
        )
        copies.target.rollback()
        assert copies.target.query("SELECT COUNT(*) FROM t") == [(0,)]


def test_history_of_a_versioned_table_is_copied(mariadb_server: DatabaseServer) -> None:
    """With the times of its rows, also where they are hidden."""
    with copying(mariadb_server, mariadb_server) as copies:
        copies.create(
            "CREATE TABLE h (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING",
            "CREATE TABLE s (id INT PRIMARY KEY, b TIMESTAMP(6) GENERATED ALWAYS AS ROW START,"
            " e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (b, e))"
            " WITH SYSTEM VERSIONING",
        )
        for name, column, ends in (("h", "v", "row_start, row_end"), ("s", "id", "b, e")):
            copies.fill(f"INSERT INTO {name} (id) VALUES (1), (2)")
            copies.fill(f"UPDATE {name} SET {column} = 9 WHERE id = 1")
            copies.fill(f"DELETE FROM {name} WHERE id = 2")
            assert copies.copy(name).rows == 3
            ours, theirs = copies.both(
                f"SELECT id, {ends} FROM {name} FOR SYSTEM_TIME ALL ORDER BY 1, 2, 3"
            )
            assert ours == theirs
            assert len(ours) == 3


def test_row_that_breaks_a_check_is_copied(mariadb_server: DatabaseServer) -> None:
    """MariaDB accepts it with check_constraint_checks off."""
    with copying(mariadb_server, mariadb_server) as copies:
        copies.create("CREATE TABLE c (id INT PRIMARY KEY, a INT CHECK (a > 0))")
        copies.fill("SET check_constraint_checks = 0", "INSERT INTO c VALUES (1, -1), (2, 2)")
        for loads in (True, False):
            assert copies.copy("c", loads=loads).rows == 2
            assert copies.are_equal("c")
            copies.target.query("DELETE FROM c")


def test_sequence_keeps_its_state(mariadb_server: DatabaseServer) -> None:
    """It is one row."""
    with copying(mariadb_server, mariadb_server) as copies:
        copies.create("CREATE SEQUENCE q START WITH 5 INCREMENT BY 3 MAXVALUE 900 CYCLE")
        copies.fill("SELECT NEXT VALUE FOR q")
        assert copies.copy("q").rows == 1
        ours, theirs = copies.both("SELECT * FROM q")
        assert ours == theirs


def test_pair_is_made_of_values(copies: Copying) -> None:
    """Spark sends it to its workers."""
    copies.create("CREATE TABLE t (id INT PRIMARY KEY)")
    inventory = read_inventory(copies.source, with_folds=False)
    table = inventory.tables[SOURCE, "t"]
    assert TablePair.of(table, table, inventory) == TablePair.of(table, table, inventory)
