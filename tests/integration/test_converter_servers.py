"""A mixed workload on each flavor: applying the records one by one rebuilds the server's tables.

Includes savepoints, XA, CREATE … SELECT, and compressed transactions and events.
"""

from collections import Counter
from dataclasses import replace

import pytest

from millrace.deploy.servers import DatabaseServer
from millrace.errors import Fatal
from millrace.schemas.documents import TableFilter
from millrace.schemas.gtid import Flavour
from millrace.schemas.record.control import DdlRecord
from millrace.schemas.record.record import Record, RowRecord
from tests.kit.binlog.compression import COMPRESSION
from tests.kit.binlog.session import LoggedSession, logged, session

pytestmark = pytest.mark.both_flavours

Tables = dict[str, Counter[tuple[object, ...]]]


def applied(records: list[Record]) -> Tables:
    """The tables that these records build from nothing."""
    tables: Tables = {}
    for record in records:
        if isinstance(record, DdlRecord):
            if record.statement.kind == "truncate_table":
                tables[record.source.table] = Counter()
        elif isinstance(record, RowRecord):
            table = tables.setdefault(record.source.table, Counter())
            if record.change.before is not None:
                before = tuple(record.change.before.values())
                assert table[before] > 0, (record.source, before)
                table[before] -= 1
            if record.change.after is not None:
                table[tuple(record.change.after.values())] += 1
    return {name: +table for name, table in tables.items()}


def server_tables(source: LoggedSession, tables: Tables) -> Tables:
    """The same tables on the server."""
    return {
        name: Counter(source.rows(f"SELECT * FROM `{name.replace('`', '``')}`")) for name in tables
    }


def _mixed(source: LoggedSession) -> None:
    source.run(
        "CREATE TABLE k (id INT PRIMARY KEY, v VARCHAR(60))",
        "CREATE TABLE nokey (a INT, b VARCHAR(10))",
        "INSERT INTO k SELECT 1, 'a' UNION SELECT 2, NULL UNION SELECT 3, 'ü'",
        "INSERT INTO nokey VALUES (1, 'x'), (1, 'x'), (NULL, NULL)",
        "UPDATE k SET id = id + 10 ORDER BY id DESC",
        "BEGIN",
        "DELETE FROM k WHERE id = 11",
        "SAVEPOINT one",
        "INSERT INTO k VALUES (50, 'kept')",
        "SAVEPOINT two",
        "INSERT INTO k VALUES (51, 'rolled back')",
        "ROLLBACK TO two",
        "UPDATE nokey SET a = 2 LIMIT 1",
        "COMMIT",
        "BEGIN",
        "INSERT INTO k VALUES (60, 'never')",
        "ROLLBACK",
        "CREATE TABLE copied AS SELECT * FROM k",
        "CREATE TABLE gone (id INT PRIMARY KEY, v INT)",
        "INSERT INTO gone VALUES (1, 1)",
        "TRUNCATE TABLE gone",
        "INSERT INTO gone VALUES (2, 2)",
        "CREATE TEMPORARY TABLE passing (a INT)",
        "INSERT INTO passing VALUES (1)",
        "DROP TEMPORARY TABLE passing",
        "CREATE TABLE `odd ``name` (`a b` INT PRIMARY KEY, `select` INT)",
        "INSERT INTO `odd ``name` VALUES (1, 2)",
        "CREATE TABLE many (id INT PRIMARY KEY, v VARCHAR(200))",
    )
    values = ",".join(f"({n}, REPEAT('{n} ', 30))" for n in range(2000))
    source.run(
        f"INSERT INTO many VALUES {values}", "UPDATE many SET v = CONCAT(v, '!') WHERE id % 3 = 0"
    )


@pytest.mark.guarantee("complete")
def test_applied_records_rebuild_the_servers_tables(server: DatabaseServer) -> None:
    """Records are applied in order, one by one; every before image equals an existing row."""
    with logged(server, "mixed_rows") as source:
        _mixed(source)
        records = source.conversion().records()
        tables = applied(records)
        assert tables == server_tables(source, tables)
        assert set(tables) == {"k", "nokey", "copied", "gone", "odd `name", "many"}
    numbered = [r for r in records if isinstance(r, RowRecord | DdlRecord)]
    assert [r.source.seq for r in numbered] == list(range(1, len(numbered) + 1))


def test_prepared_transactions_appear_when_committed(server: DatabaseServer) -> None:
    """Three prepared transactions across others, one of them rolled back; a fourth commits in one phase."""
    with logged(server, "xa_rows") as source:
        source.run("CREATE TABLE t (id INT PRIMARY KEY)")
        for xid, number in (("'a','b',3", 1), ("'r'", 2), ("'z'", 3)):
            with session(server) as other:
                other.execute("USE xa_rows")
                for statement in (
                    f"XA START {xid}",
                    f"INSERT INTO t VALUES ({number})",
                    f"XA END {xid}",
                    f"XA PREPARE {xid}",
                ):
                    other.execute(statement)
                if server.flavour is Flavour.MARIADB:  # ends with its connection
                    other.execute(f"XA {'ROLLBACK' if number == 2 else 'COMMIT'} {xid}")
        source.run("INSERT INTO t VALUES (4)")
        if server.flavour is Flavour.MYSQL:
            source.run("XA COMMIT 'z'", "XA ROLLBACK 'r'", "XA COMMIT 'a','b',3")
        source.run(
            "XA START 'o'", "INSERT INTO t VALUES (5)", "XA END 'o'", "XA COMMIT 'o' ONE PHASE"
        )
        rows = source.conversion().rows()
        order = [4, 3, 1, 5] if server.flavour is Flavour.MYSQL else [1, 3, 4, 5]
        assert [row.key for row in rows] == [{"id": number} for number in order]
        assert all(row.transaction.is_last for row in rows)


def test_compressed_transactions_and_events_are_read(server: DatabaseServer) -> None:
    """MySQL compresses whole transactions (zstd), MariaDB rows and statements (zlib)."""
    switch_on, switch_off = COMPRESSION[server.flavour]
    with logged(server, "compressed_rows") as source:
        source.run(*switch_on)
        _mixed(source)
        source.run("ALTER TABLE k COMMENT 'a statement that is long enough to be compressed'")
        records = source.conversion().records()
        tables = applied(records)
        assert tables == server_tables(source, tables)
        source.run(*switch_off)
        content = (server.binlog_dir / source.file).read_bytes()
        kinds = set()
        at = 4
        while at < len(content):
            kinds.add(content[at + 4])
            at += int.from_bytes(content[at + 9 : at + 13], "little")
        assert kinds & ({40} if server.flavour is Flavour.MYSQL else {166, 167, 169, 170})
        assert any("long enough" in r.statement.sql for r in records if isinstance(r, DdlRecord))


def test_large_compressed_transaction_is_split_into_batches(server: DatabaseServer) -> None:
    """Batches end inside the transaction, and every row appears once."""
    switch_on, switch_off = COMPRESSION[server.flavour]
    with logged(server, "large_rows") as source:
        source.run("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200))", *switch_on, "BEGIN")
        for start in range(0, 9000, 3000):
            values = ",".join(f"({n}, REPEAT('{n} ', 30))" for n in range(start, start + 3000))
            source.run(f"INSERT INTO t VALUES {values}")
        source.run("COMMIT", *switch_off)
        conversion = source.conversion()
    batches = list(conversion.batches(rows_max=500, bytes_max=100_000))
    opened = [batch.progress.open for batch in batches if batch.progress.open is not None]
    assert len(opened) > 5
    assert [o.rows for o in opened] == sorted(o.rows for o in opened)
    assert sum(batch.rows for batch in batches) == 9000
    assert [row.key for row in conversion.rows()] == [{"id": n} for n in range(9000)]


def test_other_engines_keep_their_rows_of_a_rolled_back_transaction(
    mariadb_server: DatabaseServer,
) -> None:
    """MariaDB logs InnoDB's rows with a ROLLBACK if there is a temporary table, and those of other engines apart."""
    with logged(mariadb_server, "rollback_rows") as source:
        source.run(
            "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
            "CREATE TABLE m (id INT PRIMARY KEY, v INT) ENGINE=MyISAM",
            "CREATE TABLE by_trigger (id INT PRIMARY KEY) ENGINE=MyISAM",
            "CREATE TABLE a (id INT PRIMARY KEY) ENGINE=Aria TRANSACTIONAL=1",
            "CREATE TABLE a0 (id INT PRIMARY KEY) ENGINE=Aria TRANSACTIONAL=0",
            "CREATE SEQUENCE s CACHE 2",
            "CREATE TABLE numbered (id INT PRIMARY KEY DEFAULT NEXTVAL(s), v INT)",
            "CREATE TRIGGER r AFTER INSERT ON t FOR EACH ROW INSERT INTO by_trigger VALUES (NEW.id)",
            "INSERT INTO numbered (v) VALUES (0)",
        )
        for number, mode in enumerate(("ROW", "MIXED")):
            first = 10 * number
            source.run(
                f"SET binlog_format={mode}",
                "BEGIN",
                f"INSERT INTO t SELECT {first + 1}, UUID_SHORT() MOD 9",
                f"INSERT INTO m SELECT {first + 1}, UUID_SHORT() MOD 9",
                f"INSERT INTO a SELECT {first + 1} + 0 * UUID_SHORT()",
                f"INSERT INTO a0 SELECT {first + 1} + 0 * UUID_SHORT()",
                "SELECT NEXTVAL(s), NEXTVAL(s), NEXTVAL(s)",
                "INSERT INTO numbered (v) VALUES (1), (2), (3)",
                "CREATE TEMPORARY TABLE x (id INT) ENGINE=MyISAM",
                "INSERT INTO x SELECT UUID_SHORT() MOD 9",
                f"INSERT INTO m SELECT {first + 2}, UUID_SHORT() MOD 9 FROM x",
                "UPDATE m JOIN numbered ON TRUE SET m.v = 9 - 0 * UUID_SHORT(), numbered.v = 9",
                "ROLLBACK",
                "BEGIN",
                f"INSERT INTO t SELECT {first + 3}, UUID_SHORT() MOD 9",
                "SAVEPOINT one",
                f"INSERT INTO m SELECT {first + 3}, UUID_SHORT() MOD 9",
                f"INSERT INTO t SELECT {first + 4}, UUID_SHORT() MOD 9",
                "DROP TEMPORARY TABLE x",
                "ROLLBACK TO one",
                "COMMIT",
            )
        sequence = source.rows("SELECT * FROM s")
        records = source.conversion().records()
        tables = applied(records)
        numbers = list(tables.pop("s").elements())
        assert tables.pop("numbered") == server_tables(source, {"numbered": Counter()})["numbered"]
        assert tables == server_tables(source, tables)
        assert {"t", "m", "by_trigger", "a", "a0"} == set(tables)
        assert sequence == numbers[-1:]


def test_large_rolled_back_transaction_publishes_nothing(mariadb_server: DatabaseServer) -> None:
    """It is larger than a batch, so its end is looked up before a part of it leaves."""
    with logged(mariadb_server, "large_rollback") as source:
        source.run(
            "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200))",
            "CREATE TEMPORARY TABLE x (id INT)",
            "INSERT INTO t VALUES (-1, '')",
        )
        for temporary, end in (
            ("DROP TEMPORARY TABLE x", "ROLLBACK"),
            ("CREATE TEMPORARY TABLE y (id INT)", "COMMIT"),
        ):
            source.run("BEGIN")
            for start in range(0, 9000, 3000):
                values = ",".join(f"({n}, REPEAT('{n} ', 30))" for n in range(start, start + 3000))
                source.run(f"INSERT INTO t VALUES {values}")
            source.run(temporary, end)
        conversion = source.conversion()
    batches = list(conversion.batches(rows_max=500, bytes_max=100_000))
    assert sum(batch.rows for batch in batches) == 9001
    assert [row.key for row in conversion.rows()] == [{"id": n} for n in range(-1, 9000)]


def test_tagged_gtids_are_reported_in_full(mysql_server: DatabaseServer) -> None:
    """``uuid:tag:number``, as the server prints it."""
    with logged(mysql_server, "tagged_rows") as source:
        source.run(
            "CREATE TABLE t (id INT PRIMARY KEY)",
            "SET gtid_next='AUTOMATIC:blue'",
            "INSERT INTO t VALUES (1)",
        )
        source.run("SET gtid_next='AUTOMATIC'")
        (row,) = source.conversion().rows()
        ((executed,),) = source.rows("SELECT @@gtid_executed")
    uuid, tag, number = row.transaction.gtid.split(":")
    assert uuid in str(executed)
    assert (tag, number) == ("blue", "1")


@pytest.mark.parametrize("compress", ["OFF", "ON"], ids=["plain", "compressed"])
def test_excluded_unreadable_rows_leave_the_others_numbered_as_alone(
    mariadb_server: DatabaseServer, compress: str
) -> None:
    """MariaDB's old times with a fraction: MR-6005 asks to exclude them; the other rows are numbered as if alone."""
    with logged(mariadb_server, "old_times") as source:
        source.run(
            f"SET GLOBAL log_bin_compress={compress}", "SET GLOBAL mysql56_temporal_format=OFF"
        )
        try:
            source.run(
                "CREATE TABLE old (id INT PRIMARY KEY, t TIME(3), d DATETIME(6), s TIMESTAMP(2), v VARCHAR(99))"
            )
        finally:
            source.run("SET GLOBAL mysql56_temporal_format=ON")
        source.run(
            "CREATE TABLE kept (id INT PRIMARY KEY)",
            "BEGIN",
            "INSERT INTO kept VALUES (1)",
            *(
                f"INSERT INTO old VALUES ({n}, '12:34:56.789', '2026-11-22 03:04:05.678901', '2026-11-22 01:02:03.45', "
                f"REPEAT('{n}', {n}))"
                for n in range(99)
            ),
            "UPDATE old SET t = '-838:59:59', d = '9999-12-31 23:59:59.999999', v = NULL",
            "INSERT INTO kept VALUES (2)",
            "DELETE FROM old",
            "COMMIT",
            "INSERT INTO kept VALUES (3)",
            "SET GLOBAL log_bin_compress=OFF",
        )
        conversion = source.conversion()
    with pytest.raises(Fatal, match="MR-6005 TIME in the format before"):
        conversion.rows()
    rows = replace(conversion, filter=TableFilter(("old_times.*",), ("*.old",))).rows()
    assert [(row.key, row.transaction.total_order) for row in rows] == [
        ({"id": 1}, 1),
        ({"id": 2}, 2),
        ({"id": 3}, 1),
    ]


def test_statement_based_logging_stops_with_its_code(server: DatabaseServer) -> None:
    """A session may switch to statement format at any time; its rows are not in the binlog."""
    with logged(server, "statement_rows") as source:
        source.run(
            "CREATE TABLE t (id INT PRIMARY KEY)",
            "SET binlog_format=STATEMENT",
            "INSERT INTO t VALUES (1)",
        )
        conversion = source.conversion()
    with pytest.raises(Exception, match="MR-6501"):
        conversion.records()


def test_partial_row_images_stop_with_their_code(server: DatabaseServer) -> None:
    """binlog_row_image=MINIMAL and MySQL's PARTIAL_JSON."""
    with logged(server, "partial_rows") as source:
        source.run(
            "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)",
            "INSERT INTO t VALUES (1, 2, 3)",
            "SET binlog_row_image=MINIMAL",
            "UPDATE t SET a = 5",
        )
        conversion = source.conversion()
    with pytest.raises(Exception, match="MR-6504"):
        conversion.records()
    if server.flavour is Flavour.MYSQL:
        with logged(server, "partial_json") as source:
            source.run(
                "CREATE TABLE t (id INT PRIMARY KEY, j JSON)",
                "INSERT INTO t VALUES (1, JSON_OBJECT('a', REPEAT('x', 100), 'b', 1))",
                "SET binlog_row_value_options=PARTIAL_JSON",
                "UPDATE t SET j = JSON_SET(j, '$.b', 2)",
            )
            conversion = source.conversion()
        with pytest.raises(Exception, match="MR-6505"):
            conversion.records()
