"""Comparison and repair of real servers while a task writes."""

import random
import threading
from collections import Counter
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from structlog.testing import capture_logs

from millrace.consumer.compare import (
    Comparison,
    Ends,
    Rules,
    State,
    Throttle,
    Work,
    compare_sets,
)
from millrace.consumer.compare.chunk import ChunkResult
from millrace.consumer.compare.pool import Threads
from millrace.consumer.target.loads import set_waiting
from millrace.deploy.servers import DatabaseServer, sql
from millrace.drivers.mysql.connection import connect
from millrace.errors import Fatal, Retryable
from millrace.schemas.gtid import Flavour
from tests.fixtures.servers import Pool
from tests.kit.apply.follower import Follower, following, writing
from tests.kit.apply.local import apply_task, endpoint_of, run_once
from tests.kit.apply.topic import RecordStream
from tests.kit.waiting import PATIENCE_S, until_locked_out

_names = count(1)

DATABASE = "repaired"
ROWS = 600
BAG_KEYS = 360  # most rows of the table without a key are there twice
DAMAGES = 150
CHUNK_ROWS = 100
TABLES = {
    "t": "id INT PRIMARY KEY, v VARCHAR(40), f FLOAT, e ENUM('x','y'), j JSON, g GEOMETRY, d DATE, w FLOAT(8,1)",
    "c": "a VARCHAR(20) COLLATE utf8mb4_general_ci, b INT, v BLOB, PRIMARY KEY (a, b)",
    "bag": "n INT, v VARCHAR(40)",
}
VALUES = {
    "t": "{0}, 'row {0}', {0} / 4, 1 + {0} % 2, '[{0}, \"é\"]', ST_GeomFromText('POINT({0} 1)'), '0000-00-00',"
    " IF({0} % 3, 1, -1) * 9999999.9",  # the FLOAT 10000000 is above the limit
    "c": "'Key {0}', {0} % 7, x'00ff'",
    "bag": f"{{0}} % {BAG_KEYS}, 'bag'",
}
DAMAGE = {
    ("t", "changed"): "UPDATE t SET v = 'damaged' WHERE id = {0}",
    ("t", "missing"): "DELETE FROM t WHERE id = {0}",
    ("t", "extra"): "INSERT INTO t (id) VALUES (-{0})",
    ("c", "changed"): "UPDATE c SET v = x'{0:06}' WHERE a = 'key {0}'",
    ("c", "missing"): "DELETE FROM c WHERE a = 'key {0}'",
    ("c", "extra"): "INSERT INTO c VALUES ('More {0}', 1, NULL)",
    ("bag", "missing"): "DELETE FROM bag WHERE n = {0} LIMIT 1",
    ("bag", "extra"): "INSERT INTO bag VALUES ({0}, 'bag')",
}


@contextmanager
def _followed(source: DatabaseServer, target: DatabaseServer) -> Iterator[Follower]:
    """Two servers with equal tables, and a task between them."""
    for server in (source, target):
        server.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        server.execute(f"CREATE DATABASE {DATABASE} DEFAULT CHARSET utf8mb4")
        with closing(connect(endpoint_of(server), database=DATABASE)) as session:
            for table, columns in TABLES.items():
                session.query(f"CREATE TABLE {table} ({columns})")
                rows = ", ".join(f"({VALUES[table].format(number)})" for number in range(ROWS))
                session.query(f"INSERT INTO {table} VALUES {rows}")
            session.query("CREATE TABLE an_empty_one (id INT PRIMARY KEY)")
            session.commit()
    with following(source, target, f"compared{next(_names)}") as made:
        yield made
    for server in (source, target):
        server.execute(f"DROP DATABASE {DATABASE}")


@pytest.fixture
def follower(mariadb_server: DatabaseServer, target_server: DatabaseServer) -> Iterator[Follower]:
    """A MariaDB as source."""
    with _followed(mariadb_server, target_server) as made:
        yield made


def _ends(follower: Follower, wait_s: float = PATIENCE_S) -> Ends:
    source, target = endpoint_of(follower.source), endpoint_of(follower.target)
    return Ends(source, target, follower.task, wait_s)


def _compared(
    follower: Follower,
    rules: Rules | None = None,
    wait_s: float = PATIENCE_S,
    *,
    only: str = "",
) -> Comparison:
    """Compare all tables, or one."""

    def takes(database: str, table: str) -> bool:
        return database == DATABASE and only in ("", table)

    rules = rules or Rules(chunk_rows=CHUNK_ROWS)
    return compare_sets(_ends(follower, wait_s), takes, rules=rules)


def _update(number: int) -> str:
    """A write of the application: to rows with odd keys, of each kind."""
    key = number * 7919 % (ROWS // 2) * 2 + 1
    match number % 5:
        case 0:
            return f"UPDATE {DATABASE}.t SET v = 'new {number}' WHERE id = {key}"
        case 1:
            return f"REPLACE INTO {DATABASE}.t (id, v) VALUES ({key}, 'back {number}')"
        case 2:
            return f"DELETE FROM {DATABASE}.t WHERE id = {key}"
        case 3:
            return f"UPDATE {DATABASE}.c SET v = 'new {number}' WHERE a = 'key {key}'"
        case _:
            return f"UPDATE {DATABASE}.t SET v = 'hot {number}' WHERE id = 1"


def _damage(follower: Follower) -> Counter[str]:
    """Make ``DAMAGES`` random changes on the target, to rows with even keys; returns their number by table."""
    chosen = random.Random(14)
    keys = {table: list(range(2, ROWS, 2)) for table in TABLES}
    keys["bag"] = list(range(BAG_KEYS))
    for each in keys.values():
        chosen.shuffle(each)
    made: Counter[str] = Counter()
    with closing(connect(endpoint_of(follower.target), database=DATABASE)) as session:
        for _ in range(DAMAGES):
            table, what = chosen.choice(list(DAMAGE))
            assert session.run(DAMAGE[table, what].format(keys[table].pop()).encode()) == 1
            made[table] += 1
        session.commit()
    return made


def _rows(server: DatabaseServer, table: str) -> list[tuple[object, ...]]:
    columns = {"t": "id, HEX(v), f + 0e0, e, HEX(CAST(j AS CHAR)), HEX(g), d + 0, w + 0e0"}
    return sorted(
        server.execute(f"SELECT {columns.get(table, '*')} FROM {table}", db=DATABASE), key=repr
    )


@pytest.mark.guarantee("compared")
def test_damage_is_found_exactly_and_repaired_under_writes(follower: Follower) -> None:
    """Random changes of the target: changed, missing and extra rows, with and without a key."""
    made = _damage(follower)
    found: Counter[str] = Counter()

    def note(chunk: ChunkResult) -> None:
        found[chunk.job.pair.source.table.table] += chunk.part.differing

    rules = Rules(chunk_rows=CHUNK_ROWS, work=Work(repairs=True), seen=note)
    with writing(follower, _update):
        compared = _compared(follower, rules)
        again = _compared(follower)
    assert found == made
    assert (compared.difference_count, compared.repaired) == (DAMAGES, DAMAGES)
    assert again.difference_count == 0
    recorded = f"SELECT COUNT(*) FROM millrace.repair WHERE task = '{follower.task}'"
    assert follower.target.execute(recorded) != [(0,)]
    follower.end()
    assert _compared(follower).has_equal_rows
    for table in TABLES:
        assert _rows(follower.source, table) == _rows(follower.target, table)


def test_comparison_under_heavy_writes_finds_no_false_difference(follower: Follower) -> None:
    """Every chunk changes while it is compared. A row that is written all the time is at most unsettled.

    The second comparison is throttled, by limits that are met.
    """
    throttle = Throttle(lag_s_max=5.0, threads_max=1_000)
    with writing(follower, _update):
        for work in (Work(), Work(throttle)):
            wanted = follower.written + 50
            while follower.written < wanted:
                found = _compared(follower, Rules(chunk_rows=CHUNK_ROWS, work=work))
                assert found.difference_count == 0
                assert found.unsettled <= 1


def test_paused_task_ends_the_comparison_with_a_code(follower: Follower) -> None:
    """It does not wait for ever for rows that do not come; what the target has already needs no task."""
    follower.is_paused.set()
    assert _compared(follower, wait_s=0.2).has_equal_rows
    follower.source.execute(f"DELETE FROM {DATABASE}.t WHERE id = 5")
    with pytest.raises(Retryable) as caught:
        _compared(follower, wait_s=0.2)
    assert caught.value.code == "MR-5120"


class _InterruptedError(Exception):
    """The comparison is interrupted."""


def test_interrupted_comparison_is_resumed_after_its_chunks(follower: Follower) -> None:
    """Chunks before the interruption are not compared again, and their differences are kept."""
    follower.target.execute(f"DELETE FROM {DATABASE}.c WHERE b = 3 LIMIT 1")
    follower.target.execute(f"DELETE FROM {DATABASE}.t WHERE id = {ROWS - 1}")
    endpoint = endpoint_of(follower.target)
    seen: list[tuple[str, int]] = []

    def interrupt(chunk: ChunkResult) -> None:
        seen.append((chunk.job.pair.name, chunk.job.chunk.number))
        if chunk.job.pair.name == f"{DATABASE}.t" and chunk.job.chunk.number == 3:
            raise _InterruptedError

    state = State.begin(endpoint, follower.task, resumes=False)
    one_by_one = Threads(_ends(follower, 30.0), 1)  # in the order of the tables
    rules = Rules(chunk_rows=CHUNK_ROWS, pool=one_by_one, state=state, seen=interrupt)
    with pytest.raises(_InterruptedError):
        _compared(follower, rules)
    state.close()
    first, seen = seen, []
    state = State.begin(endpoint, follower.task, resumes=True)
    found = _compared(
        follower,
        replace(rules, state=state, seen=lambda chunk: seen.append((chunk.job.pair.name, 0))),
    )
    state.close()
    assert (found.difference_count, found.rows) == (2, 3 * ROWS)
    assert {one.table for one in found.differences} == {f"{DATABASE}.c", f"{DATABASE}.t"}
    assert {name for name, _ in seen} == {f"{DATABASE}.t"}
    assert len(first) > 8
    with pytest.raises(Fatal) as caught:
        State.begin(endpoint, follower.task, resumes=True)
    assert caught.value.code == "MR-5124"


def test_two_mysql_servers_are_repaired_and_chunks_stored(
    mysql_server: DatabaseServer, pool: Pool
) -> None:
    """Their sums are XORs, also of a table without rows."""
    with _followed(mysql_server, pool.server(Flavour.MYSQL, 102)) as follower:
        follower.target.execute(f"DELETE FROM {DATABASE}.t WHERE id = 7")
        endpoint = endpoint_of(follower.target)
        with closing(State.begin(endpoint, follower.task, resumes=False)) as state:
            rules = Rules(chunk_rows=CHUNK_ROWS, work=Work(repairs=True), state=state)
            found = _compared(follower, rules)
        assert (found.difference_count, found.repaired) == (1, 1)
        assert _compared(follower).has_equal_rows


def test_second_comparison_of_a_task_is_refused(follower: Follower) -> None:
    """The first one keeps its chunks; its lock ends with its session."""
    endpoint = endpoint_of(follower.target)
    with closing(State.begin(endpoint, follower.task, resumes=False)):
        for resumes in (False, True):
            with pytest.raises(Retryable) as caught:
                State.begin(endpoint, follower.task, resumes=resumes)
            assert caught.value.code == "MR-5136"
    State.begin(endpoint, follower.task, resumes=True).close()


def test_state_needs_a_task_that_has_run(target_server: DatabaseServer) -> None:
    """There is nothing to wait for."""
    run_once(target_server, apply_task("another"), RecordStream())
    with pytest.raises(Fatal) as caught:
        State.begin(endpoint_of(target_server), "never", resumes=False)
    assert caught.value.code == "MR-5126"


def test_table_that_a_load_copies_is_neither_different_nor_repaired(follower: Follower) -> None:
    """Its rows are on their way. The row of another table is repaired."""
    follower.target.execute(f"DELETE FROM {DATABASE}.t WHERE id < 10")
    follower.target.execute(f"DELETE FROM {DATABASE}.c WHERE b = 3 LIMIT 1")
    waiting = {(DATABASE, "t"), (DATABASE, "gone")}
    follower.source.execute(f"CREATE TABLE {DATABASE}.gone (id INT)")
    with closing(connect(endpoint_of(follower.target))) as session:
        set_waiting(session, follower.task, waiting, detail="asked for")
        session.commit()
    moved = f"UPDATE millrace.progress SET gtid_set = '{follower.source.gtid_position()}'"
    follower.target.execute(f"{moved} WHERE task = '{follower.task}'")
    found = _repaired(follower)
    assert found.counts == {f"{DATABASE}.c": 1}
    assert (found.repaired, found.unsettled) == (1, 2)
    assert follower.target.execute(f"SELECT COUNT(*) FROM {DATABASE}.t") == [(ROWS - 10,)]


def test_table_with_kept_rows_is_named_and_not_repaired(follower: Follower) -> None:
    """A replay would change what the repair has written. The row of another table is repaired."""
    follower.target.execute(f"DELETE FROM {DATABASE}.t WHERE id < 10")
    follower.target.execute(f"DELETE FROM {DATABASE}.c WHERE b = 3 LIMIT 1")
    follower.target.execute(
        "INSERT INTO millrace.aside VALUES (%s, 1, %s, 't', %s, 't', 0, 0, 1)",
        (follower.task, DATABASE, DATABASE),
    )
    with capture_logs() as logs:
        found = _repaired(follower)
    assert found.kept == {f"{DATABASE}.t": 1}
    assert (found.difference_count, found.repaired) == (11, 1)
    assert _codes(logs) == ["MR-5123"]


def test_row_that_the_target_refuses_is_left_and_named(follower: Follower) -> None:
    """A CHECK of the target refuses one row; the other row of its batch is repaired."""
    target = follower.target
    target.execute("DELETE FROM t WHERE id IN (10, 20)", db=DATABASE)
    with closing(connect(endpoint_of(target), database=DATABASE)) as session:
        session.query("SET SESSION sql_mode = ''")  # w has values that a strict mode refuses
        session.query("ALTER TABLE t ADD CHECK (id <> 20)")
    with capture_logs() as logs:
        found = _repaired(follower)
    assert (found.difference_count, found.repaired) == (2, 1)
    assert _codes(logs) == ["MR-5122"]
    assert _rows(target, "t") == [row for row in _rows(follower.source, "t") if row[0] != 20]


@pytest.mark.parametrize("key", ["PRIMARY KEY (v(2))", "PRIMARY KEY (n), UNIQUE KEY (v(2))"])
def test_wrong_row_with_the_prefix_of_a_key_is_replaced(follower: Follower, key: str) -> None:
    """It is in the same table without a chunk key, or in a later chunk: no row is missing after the repair."""
    target = follower.target
    for server in (follower.source, target):
        # the flavours have other defaults, and a row is replaced only under equal unique keys
        column = "v VARCHAR(40) COLLATE utf8mb4_general_ci"
        server.execute(f"CREATE TABLE prefixed (n INT, {column}, {key})", db=DATABASE)
        server.execute("INSERT INTO prefixed VALUES (1, 'ab'), (2, 'cd'), (3, 'ef')", db=DATABASE)
    target.execute("UPDATE prefixed SET n = n + 10, v = CONCAT(v, 'x') WHERE n < 3", db=DATABASE)
    rules = Rules(chunk_rows=1, work=Work(repairs=True))
    moved = f"UPDATE millrace.progress SET gtid_set = '{follower.source.gtid_position()}'"
    target.execute(f"{moved} WHERE task = '{follower.task}'")
    with capture_logs() as logs:
        compared = _compared(follower, rules, only="prefixed")
    assert (compared.tables, compared.rows) == (1, 3)
    assert _codes(logs) == []
    assert _rows(follower.source, "prefixed") == _rows(target, "prefixed")


def test_table_whose_trigger_would_write_more_is_not_repaired(follower: Follower) -> None:
    """Its differences are listed with the SQL."""
    target = follower.target
    target.execute("DELETE FROM t WHERE id = 10", db=DATABASE)
    target.execute(
        "CREATE TRIGGER more AFTER INSERT ON t FOR EACH ROW DELETE FROM bag", db=DATABASE
    )
    with capture_logs() as logs:
        found = _repaired(follower)
    assert (found.difference_count, found.repaired) == (1, 0)
    assert _codes(logs) == ["MR-5123"]
    target.execute("DROP TRIGGER more", db=DATABASE)
    (difference,) = found.differences
    with sql.root_connection(target.socket) as session:
        for statement in difference.rows.repair.split("; "):
            session.cursor().execute(statement.replace("%", "%%"))
        session.commit()
    assert _compared(follower).has_equal_rows


def test_repair_waits_for_the_transactions_of_apply(follower: Follower) -> None:
    """One that is under way holds the fence, and may have read the row that differs."""
    follower.target.execute(f"UPDATE {DATABASE}.t SET v = 'damaged' WHERE id = 2")
    found: list[Comparison] = []
    rules = Rules(chunk_rows=CHUNK_ROWS, work=Work(repairs=True))
    thread = threading.Thread(target=lambda: found.append(_compared(follower, rules)))
    with closing(connect(endpoint_of(follower.target))) as apply:
        apply.query(
            "SELECT run FROM millrace.fence WHERE task = %s LOCK IN SHARE MODE", (follower.task,)
        )
        thread.start()
        until_locked_out(follower.target, what="repair waits")
        damaged = f"SELECT v FROM {DATABASE}.t WHERE id = 2"
        assert follower.target.execute(damaged) == [("damaged",)]
        apply.rollback()
    thread.join()
    assert (found[0].difference_count, found[0].repaired) == (1, 1)
    assert follower.target.execute(damaged) == [("row 2",)]


def test_repair_fires_no_cascade(follower: Follower) -> None:
    """REPLACE deletes the parent's row and inserts it; its children stay."""
    child = "id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES t (id) ON DELETE CASCADE"
    follower.target.execute(f"CREATE TABLE child ({child})", db=DATABASE)
    follower.target.execute("INSERT INTO child VALUES (1, 10)", db=DATABASE)
    follower.target.execute("UPDATE t SET v = 'damaged' WHERE id = 10", db=DATABASE)
    found = _repaired(follower)
    assert [(one.table, one.what) for one in found.differences] == [
        (f"{DATABASE}.child", "extra"),
        (f"{DATABASE}.t", "different"),
    ]
    assert found.repaired == 1
    assert follower.target.execute("SELECT * FROM child", db=DATABASE) == [(1, 10)]


def test_key_with_another_collation_is_compared_by_digest(follower: Follower) -> None:
    """Both sides sort the key differently; a changed row is still one difference, and repaired."""
    target = follower.target
    target.execute("ALTER TABLE c MODIFY a VARCHAR(20) COLLATE utf8mb4_bin", db=DATABASE)
    target.execute("UPDATE c SET v = 'x' WHERE a = 'Key 8'", db=DATABASE)
    target.execute("DELETE FROM c WHERE a = 'Key 9'", db=DATABASE)
    found = _repaired(follower)
    assert [(one.what, one.key) for one in found.differences] == [
        ("different", "'Key 8',1"),
        ("missing", "'Key 9',2"),
    ]
    assert found.repaired == 2
    assert _rows(follower.source, "c") == _rows(target, "c")


def test_columns_of_one_side_keep_their_values_in_a_repair(follower: Follower) -> None:
    """The common columns are written. Without a common key it is unknown which row to change, so nothing is."""
    target = follower.target
    target.execute("ALTER TABLE t ADD more INT NOT NULL DEFAULT 5, DROP COLUMN d", db=DATABASE)
    target.execute("ALTER TABLE bag ADD more INT NOT NULL DEFAULT 5", db=DATABASE)
    target.execute("UPDATE t SET more = id", db=DATABASE)
    target.execute("UPDATE t SET v = 'damaged' WHERE id IN (2, 3)", db=DATABASE)
    target.execute("DELETE FROM t WHERE id = 4", db=DATABASE)
    target.execute("INSERT INTO t (id, more) VALUES (-1, 77)", db=DATABASE)
    target.execute("DELETE FROM bag WHERE n = 1 LIMIT 1", db=DATABASE)
    with capture_logs() as logs:
        found = _repaired(follower)
    assert [(one.table, one.key, one.is_left) for one in found.differences] == [
        (f"{DATABASE}.bag", "1,'bag'", True),
        *((f"{DATABASE}.t", key, False) for key in ("2", "3", "4", "-1")),
    ]
    assert _codes(logs) == ["MR-5123"]
    places = [change.place for change in found.structure]  # the flavours' collations differ, too
    assert [place for place in places if place in ("column more", "column d")] == [
        "column more",
        "column d",
        "column more",
    ]
    rows = "SELECT id, v, more FROM t WHERE id BETWEEN -1 AND 4 AND id <> 0 ORDER BY id"
    assert target.execute(rows, db=DATABASE) == [
        (1, "row 1", 1),
        (2, "row 2", 2),
        (3, "row 3", 3),
        (4, "row 4", 5),
    ]
    recorded = target.execute(
        "SELECT row_before FROM millrace.repair WHERE task = %s AND what = 'extra'",
        (follower.task,),
    )
    assert [("`more`=77" in str(text)) for (text,) in recorded] == [True]


def test_repair_deletes_no_row_that_has_further_columns(follower: Follower) -> None:
    """A row that is deleted for another one would lose the values that only the target has."""
    for server in (follower.source, follower.target):
        sql.execute_unlogged(server.socket, [f"ALTER TABLE {DATABASE}.t ADD UNIQUE KEY by_v (v)"])
    target = follower.target
    target.execute("ALTER TABLE t ADD more INT NOT NULL DEFAULT 5", db=DATABASE)
    target.execute("UPDATE t SET v = 'free', more = 6 WHERE id = 2", db=DATABASE)
    target.execute("UPDATE t SET v = 'row 2', more = 7 WHERE id = 3", db=DATABASE)
    with capture_logs() as logs:
        found = _repaired(follower)
    assert (found.difference_count, found.repaired) == (2, 1)
    assert _codes(logs) == ["MR-5122"]
    rows = "SELECT id, v, more FROM t WHERE id IN (2, 3) ORDER BY id"
    assert target.execute(rows, db=DATABASE) == [(2, "free", 6), (3, "row 3", 7)]
    assert _repaired(follower).repaired == 1
    assert target.execute(rows, db=DATABASE) == [(2, "row 2", 6), (3, "row 3", 7)]


def test_small_max_allowed_packet_is_refused(follower: Follower) -> None:
    """The server would return NULL for a long row, and no difference in it would be found."""
    target = follower.target
    ((limit,),) = target.execute("SELECT @@GLOBAL.max_allowed_packet")
    target.execute("SET GLOBAL max_allowed_packet = 65536")
    try:
        with pytest.raises(Fatal) as caught:
            _compared(follower)
    finally:
        target.execute(f"SET GLOBAL max_allowed_packet = {limit}")
    assert caught.value.code == "MR-5121"


def _repaired(follower: Follower) -> Comparison:
    """The source's changes by tests are no changes of the task, so nothing is waited for."""
    return _compared(follower, Rules(chunk_rows=CHUNK_ROWS, work=Work(repairs=True)))


def _codes(logs: Sequence[MutableMapping[str, Any]]) -> list[str]:
    return [entry["error"].code for entry in logs if "error" in entry]


def test_table_on_its_way_is_no_difference(follower: Follower) -> None:
    """The target has it when it has applied what the source had; a table that only the target has is extra."""
    follower.target.execute("CREATE TABLE foreign_one (id INT)", db=DATABASE)
    with closing(connect(endpoint_of(follower.source))) as session:
        follower.write(session, f"CREATE TABLE {DATABASE}.fresh (id INT PRIMARY KEY)")
        found = _compared(follower)
    assert [(one.table, one.what) for one in found.differences] == [
        (f"{DATABASE}.foreign_one", "extra")
    ]
    assert found.tables == len(TABLES) + len({"an_empty_one", "fresh"})
