"""Apply on real targets of both flavors, without Spark: rows, keys, replays.

The oracle is the content of the server's tables.
"""

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from secrets import randbelow
from threading import Event

import pytest

from consumer.batch import BatchApplier
from consumer.executor import Order, Outcome
from consumer.row_schemas import Ints
from consumer.sessions import session_for
from consumer.table_plans import Catalogue
from consumer.target import fence
from consumer.target.connection import TargetConnection, connect
from consumer.target.fence import raise_fence
from consumer.target.progress import delete_progress
from deploy.servers import DatabaseServer
from millrace.errors import Fatal, Fenced, Retryable
from schemas.table.structure import Column, ColumnType, TypeCode
from tests.kit.apply.history import SQL, make_history
from tests.kit.apply.local import (
    LaneOrder,
    LocalRecords,
    apply_task,
    backwards,
    endpoint_of,
    ignore,
    run_once,
    started,
)
from tests.kit.apply.tables import ACCOUNTS_SQL, account, accounts, integer, table, text
from tests.kit.apply.topic import UUID, RecordStream
from tests.kit.binlog.session import session

LANES_MAX = 8


def _history(database: str, *, seed: int = 1, changes: int = 400) -> RecordStream:
    """Inserts, updates, deletes, key changes and swapped unique codes in many source transactions."""
    chance, stream, made = random.Random(seed), RecordStream(), accounts(database)
    rows: dict[int, dict[str, object]] = {}
    for number in range(changes):
        kind = chance.random()
        free = [code for code in range(60) if code not in {row["code"] for row in rows.values()}]
        if kind < 0.4 or not rows:
            new = account(number, code=chance.choice([None, *free[:3]]))
            rows[number] = new
            stream.insert(made, new)
        else:
            key = chance.choice(sorted(rows))
            before = rows.pop(key)
            if kind < 0.9:
                moved = number if kind > 0.8 else key
                after = before | {
                    "id": moved,
                    "code": chance.choice([None, *free[:3]]),
                    "amount": number,
                }
                rows[moved] = after
                stream.update(made, before, after)
            else:
                stream.delete(made, before)
        if chance.random() < 0.3:
            stream.commit()
    stream.commit()
    return stream


def _serial(
    database: str, stream: RecordStream, server: DatabaseServer
) -> list[tuple[object, ...]]:
    """Return the rows that one lane makes of the stream; then delete the task's progress and empty the table."""
    task = apply_task(database)
    run_once(server, task, stream, is_large=False)
    rows = server.execute(f"SELECT * FROM {database}.accounts ORDER BY id")
    server.execute(f"DELETE FROM {database}.accounts")
    session = connect(endpoint_of(server))
    delete_progress(session, database)
    session.close()
    return list(rows)


# a failing test shows its seed; add the seed to the test's list to replay it
DRAWN = [pytest.param(randbelow(1 << 32), marks=pytest.mark.chaos) for _ in range(10)]


def _any_order(chance: random.Random) -> LaneOrder:
    return lambda count: chance.sample(range(count), count)


@pytest.mark.parametrize("seed", [1, 2, 3, *DRAWN])
@pytest.mark.guarantee("applied")
def test_any_batch_cut_and_lane_count_gives_equal_rows(
    name: str, target_server: DatabaseServer, seed: int
) -> None:
    """Micro-batches cut anywhere, lanes in any order and restarts between them give the rows of one lane."""
    target_server.execute(ACCOUNTS_SQL, db=name)
    stream = _history(name, seed=seed)
    wanted = _serial(name, stream, target_server)
    chance, at = random.Random(seed), 0
    applier = started(target_server, apply_task(name, lanes=chance.randint(2, LANES_MAX)))
    while at < len(stream.values):
        end = at + chance.choice([1, 7, 50, chance.randint(2, 200)])
        records = LocalRecords(
            stream.values[at:end],
            at,
            is_large=chance.random() < 0.7,
            arrow_rows=chance.choice([3, 1000]),
            lane_order=_any_order(chance),
        )
        applier.process(records, ignore)
        if chance.random() < 0.3:
            applier.close()
            applier = started(target_server, apply_task(name, lanes=chance.randint(1, LANES_MAX)))
        at = max(applier.mark.next_offset, 0)
    applier.close()
    assert target_server.execute(f"SELECT * FROM {name}.accounts ORDER BY id") == wanted
    assert wanted, "the history leaves rows"


@pytest.mark.parametrize("seed", [1, 2, *DRAWN])
def test_histories_with_all_key_kinds_give_equal_rows(
    name: str, target_server: DatabaseServer, seed: int
) -> None:
    """As in the model: NULLs in unique keys, swapped keys, case-insensitive and padded texts, no key, cascades."""
    for sql in SQL:
        target_server.execute(sql, db=name)
    history, chance = make_history(name, seed=seed, steps=250), random.Random(seed)
    values, at = history.stream.values, 0
    while at < len(values):
        applier = started(target_server, apply_task(name, lanes=chance.randint(1, LANES_MAX)))
        at = max(applier.mark.next_offset, 0)
        end = at + chance.choice([20, 120, chance.randint(2, 300)])
        kind = _Interrupted if chance.random() < 0.5 else LocalRecords
        is_large = chance.random() < 0.8
        records = kind(values[at:end], at, is_large=is_large, lane_order=_any_order(chance))
        with suppress(_LostError):
            applier.process(records, ignore)
        at = max(applier.mark.next_offset, 0)
        applier.close()
    for which in ("accounts", "words", "bag", "p", "c"):
        rows = target_server.execute(f"SELECT * FROM {name}.{which}")
        assert sorted(map(tuple, rows), key=repr) == history.tables.sorted(which), which


@pytest.mark.guarantee("applied")
def test_replay_from_an_older_offset_changes_nothing(
    name: str, target_server: DatabaseServer
) -> None:
    """Bitmaps make later runs skip seqs that lanes committed before a crash, with any lane plan."""
    target_server.execute(ACCOUNTS_SQL, db=name)
    stream = _history(name)
    wanted = _serial(name, stream, target_server)
    applier = started(target_server, apply_task(name, lanes=5))
    with pytest.raises(_LostError):
        applier.process(_Interrupted(stream.values, lane_order=backwards), ignore)
    applier.close()
    assert target_server.execute(
        "SELECT COUNT(*) FROM millrace.applied WHERE task = %s", (name,)
    ) == [(2,)]
    again = started(target_server, apply_task(name, lanes=2))
    assert len(again.applied) > 0
    assert again.mark.seq == 0
    again.process(LocalRecords(stream.values), ignore)
    again.process(LocalRecords(stream.values), ignore)
    again.close()
    assert target_server.execute(f"SELECT * FROM {name}.accounts ORDER BY id") == wanted
    assert target_server.execute(
        "SELECT COUNT(*) FROM millrace.applied WHERE task = %s", (name,)
    ) == [(0,)]


def test_seqs_applied_above_the_mark_survive_restarts(
    name: str, target_server: DatabaseServer
) -> None:
    """The second run moves the mark with a shorter micro-batch; the third still skips the applied seqs above it."""
    target_server.execute(ACCOUNTS_SQL, db=name)
    stream = _history(name)
    wanted = _serial(name, stream, target_server)
    first = started(target_server, apply_task(name, lanes=5))
    with pytest.raises(_LostError):
        first.process(_Interrupted(stream.values), ignore)
    first.close()
    second = started(target_server, apply_task(name, lanes=2))
    second.process(LocalRecords(stream.values[:40]), ignore)
    second.close()
    third = started(target_server, apply_task(name, lanes=3))
    assert int(third.applied.max()) > third.mark.seq > 0
    third.process(LocalRecords(stream.values), ignore)
    third.close()
    assert target_server.execute(f"SELECT * FROM {name}.accounts ORDER BY id") == wanted
    assert not target_server.execute("SELECT * FROM millrace.applied WHERE task = %s", (name,))


class _LostError(Exception):
    """Simulates the driver's death."""


class _Interrupted(LocalRecords):
    """Commits two lanes; then the driver dies."""

    def lanes(
        self, order: Order, catalogue: Catalogue, applied: Ints, *, offsets: Ints, lanes: Ints
    ) -> list[Outcome]:
        order_of_all = self.lane_order
        self.lane_order = lambda count: order_of_all(count)[:2]
        super().lanes(order, catalogue, applied, offsets=offsets, lanes=lanes)
        raise _LostError


@pytest.mark.guarantee("fenced")
def test_stale_run_writes_nothing(name: str, target_server: DatabaseServer) -> None:
    """Once a successor has raised the fence, its predecessor's target transactions fail in every code path."""
    target_server.execute(ACCOUNTS_SQL, db=name)
    stream = _history(name, changes=50)
    stale = started(target_server, apply_task(name), epoch=7)
    started(target_server, apply_task(name), epoch=8).close()
    for is_large in (True, False):
        with pytest.raises(Fenced) as caught:
            stale.process(LocalRecords(stream.values, is_large=is_large), ignore)
        assert caught.value.code == "MR-5020"
    stale.close()
    assert target_server.execute(f"SELECT COUNT(*) FROM {name}.accounts") == [(0,)]
    with pytest.raises(Fenced):
        started(target_server, apply_task(name), epoch=7)


def test_raising_the_fence_kills_a_hung_lane_transaction(
    name: str, target_server: DatabaseServer
) -> None:
    """A hung lane transaction does not block the successor, and its rows are rolled back."""
    target_server.execute(ACCOUNTS_SQL, db=name)
    applier = started(target_server, apply_task(name))
    hung = session_for(endpoint_of(target_server), applier.assignment.owner)
    share = "LOCK IN SHARE MODE" if target_server.flavour == "mariadb" else "FOR SHARE"
    hung.query(f"SELECT * FROM millrace.fence WHERE task = %s {share}", (name,))
    hung.query(f"INSERT INTO {name}.accounts VALUES (1, NULL, NULL, 1)")
    successor = started(target_server, apply_task(name))
    assert successor.assignment.owner.run == applier.assignment.owner.run + 1
    assert target_server.execute(f"SELECT COUNT(*) FROM {name}.accounts") == [(0,)]
    hung.close()
    applier.close()
    successor.close()


def test_raising_the_fence_kills_a_hung_predecessor(
    name: str, target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The predecessor hangs after it locked the fence and before it updates it; the successor kills its session."""
    first = started(target_server, apply_task(name), epoch=1)
    hung, really_query, goes_on = (
        connect(endpoint_of(target_server)),
        TargetConnection.query,
        Event(),
    )
    is_there = Event()

    def query(self: TargetConnection, sql: str, *arguments: object) -> object:
        if self is hung and sql.startswith("UPDATE millrace.fence"):
            is_there.set()
            assert goes_on.wait(60)
        return really_query(self, sql, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(TargetConnection, "query", query)
    monkeypatch.setattr(fence, "HUNG_S", 0.3)
    with ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(raise_fence, hung, task=name, epoch=1)
        assert is_there.wait(60)
        successor = started(target_server, apply_task(name), epoch=2)
        goes_on.set()
        assert isinstance(stopped.exception(60), Retryable)
    assert successor.assignment.owner.run == first.assignment.owner.run + 1
    row = target_server.execute("SELECT epoch, run FROM millrace.fence WHERE task = %s", (name,))
    assert row == [(2, successor.assignment.owner.run)]
    for each in (hung, first, successor):
        each.close()


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


def test_generated_invisible_primary_key_is_found(
    mysql_server: DatabaseServer,
) -> None:
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


def test_session_closed_by_the_target_is_reopened(name: str, target_server: DatabaseServer) -> None:
    """A lane whose idle connection the server closed does not fail its task."""
    target_server.execute(ACCOUNTS_SQL, db=name)
    stream = RecordStream()
    applier = started(target_server, apply_task(name))
    for number in (1, 2):
        first = len(stream.values)
        stream.insert(accounts(name), account(number))
        stream.commit()
        session = session_for(applier.assignment.endpoint, applier.assignment.owner)
        target_server.execute(f"KILL {session.id}")
        applier.process(LocalRecords(stream.values[first:], first, is_large=False), ignore)
    applier.close()
    assert target_server.execute(f"SELECT COUNT(*) FROM {name}.accounts") == [(2,)]


def test_seq_gap_before_a_statement_blocks_the_task(
    name: str, target_server: DatabaseServer
) -> None:
    """A DDL statement has its own seq and never executes after missing rows."""
    target_server.execute(ACCOUNTS_SQL, db=name)
    stream = RecordStream()
    stream.insert(accounts(name), account(1))
    stream.ddl("DROP TABLE accounts", database=name)
    applier = started(target_server, apply_task(name))
    with pytest.raises(Fatal) as caught:
        applier.process(LocalRecords([stream.values[0], *stream.values[2:]]), ignore)
    applier.close()
    assert caught.value.code == "MR-5031"
    assert target_server.execute("SHOW TABLES LIKE 'accounts'", db=name)


def test_statement_past_another_topics_mark_blocks_the_task(
    name: str, target_server: DatabaseServer
) -> None:
    """It is neither executed nor skipped as a replay."""
    target_server.execute(ACCOUNTS_SQL, db=name)
    stream = RecordStream()
    for number in range(3):
        stream.insert(accounts(name), account(number))
    stream.commit()
    mark = run_once(target_server, apply_task(name), stream).mark
    other = RecordStream(seq=1)
    other.ddl("DROP TABLE accounts", database=name)
    applier = started(target_server, apply_task(name))
    with pytest.raises(Fatal) as caught:
        applier.process(LocalRecords(other.values, mark.next_offset), ignore)
    applier.close()
    assert (caught.value.code, applier.mark) == ("MR-5035", mark)
    assert target_server.execute("SHOW TABLES LIKE 'accounts'", db=name)


def test_seq_gap_in_the_topic_blocks_the_task(name: str, target_server: DatabaseServer) -> None:
    """seq has no gaps: a missing record at the start or in the middle blocks the task."""
    target_server.execute(ACCOUNTS_SQL, db=name)
    stream = _history(name, changes=20)
    rows = [number for number, value in enumerate(stream.values) if value[5] in (0, 2)]
    for missing, code in ((rows[0], "MR-5031"), (rows[5], "MR-5030")):
        values = stream.values[:missing] + stream.values[missing + 1 :]
        applier = started(target_server, apply_task(name))
        with pytest.raises(Fatal) as caught:
            applier.process(LocalRecords(values), ignore)
        applier.close()
        assert caught.value.code == code


def test_records_of_a_stale_capture_owner_block_the_task(
    name: str, target_server: DatabaseServer
) -> None:
    """The epoch in a topic never decreases."""
    target_server.execute(ACCOUNTS_SQL, db=name)
    stream = RecordStream(epoch=5)
    stream.insert(accounts(name), account(1))
    stream.commit()
    stream.epoch = 4
    stream.commit()
    with pytest.raises(Fatal) as caught:
        run_once(target_server, apply_task(name), stream)
    assert caught.value.code == "MR-5034"


def test_rows_before_the_start_are_skipped(name: str, target_server: DatabaseServer) -> None:
    """A task that starts at a GTID set applies the rows and statements after it and none before it."""
    target_server.execute(ACCOUNTS_SQL, db=name)
    made, stream = accounts(name), RecordStream()
    stream.fence()
    stream.ddl("DROP TABLE accounts", database=name)
    for number in range(2, 6):
        stream.insert(made, account(number))
        stream.commit()
    run_once(target_server, apply_task(name, start=f"{UUID}:1-3"), stream)
    rows = target_server.execute(f"SELECT id FROM {name}.accounts ORDER BY id")
    assert rows == [(4,), (5,)]


def test_restart_knows_schemas_from_before_the_mark(
    name: str, target_server: DatabaseServer
) -> None:
    """A restart past the schema record needs neither the topic's beginning nor a registry."""
    target_server.execute(ACCOUNTS_SQL, db=name)
    made, stream = accounts(name), RecordStream()
    stream.insert(made, account(1))
    stream.commit()
    for is_large in (True, False):
        first = len(stream.values)
        run_once(target_server, apply_task(name), stream, is_large=is_large)
        stream.insert(made, account(stream.seq + 1))
        stream.commit()
        applier = started(target_server, apply_task(name))
        applier.process(LocalRecords(stream.values[first:], first, is_large=is_large), ignore)
        applier.close()
    assert target_server.execute(f"SELECT COUNT(*) FROM {name}.accounts") == [(3,)]


def test_resolved_records_advance_the_mark_without_rows(
    name: str, target_server: DatabaseServer
) -> None:
    """The applied GTID set follows source transactions without rows."""
    stream = RecordStream()
    for _ in range(3):
        stream.commit()
    applier: BatchApplier = run_once(target_server, apply_task(name), stream)
    assert applier.mark.gtid_set == f"{UUID}:1-3"
    assert started(target_server, apply_task(name)).mark == applier.mark
