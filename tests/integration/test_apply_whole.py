"""``consistency: transactional`` on real targets: a reader sees each source transaction wholly or not at all."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from millrace.consumer.target.progress import Mark
from millrace.consumer.write.large_transaction import INSIDE_LARGE
from millrace.consumer.write.target_transaction import (
    AFTER_LANE_COMMIT,
    AFTER_MARK,
    BEFORE_LANE_COMMIT,
)
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import Row
from millrace.errors import Fatal
from millrace.faults import watched
from millrace.schemas.documents import ApplyTask, ConflictPolicy, Consistency
from millrace.schemas.table.structure import TableSchema
from tests.kit.apply.fault_tables import other_session
from tests.kit.apply.local import ALL, LocalRecords, apply_task, ignore, started
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream
from tests.kit.forked import killed_at

ACCOUNTS = 300
BALANCE = 100
TRANSFERS = 200
LARGE_ROWS = 50
SMALL_ROWS = 20  # of a window


def _accounts(server: DatabaseServer, name: str) -> RecordStream:
    """An empty table on the target, and the source transaction that fills it."""
    server.execute("CREATE TABLE accounts (id INT PRIMARY KEY, n INT)", db=name)
    stream = RecordStream()
    for number in range(ACCOUNTS):
        stream.insert(_table(name), {"id": number, "n": BALANCE})
    stream.commit()
    return stream


def _transfer(stream: RecordStream, name: str, balances: list[int], chance: random.Random) -> None:
    """A source transaction that moves an amount between two accounts, in two or four rows."""
    for _ in range(chance.choice([1, 1, 2])):
        for number, amount in zip(chance.sample(range(ACCOUNTS), 2), (-1, 1), strict=True):
            before = {"id": number, "n": balances[number]}
            balances[number] += amount
            stream.update(_table(name), before, before | {"n": balances[number]})
    stream.commit()


def _table(name: str) -> TableSchema:
    return table(name, "accounts", integer("id"), integer("n"))


def _apply(server: DatabaseServer, task: ApplyTask, records: LocalRecords) -> Mark:
    """One run; the mark after it."""
    applier = started(server, task)
    try:
        applier.process(records, ignore)
    finally:
        applier.close()
    return applier.mark


@contextmanager
def _read_after_each_commit(server: DatabaseServer, name: str, query: str) -> Iterator[list[Row]]:
    """The rows that another session reads after each target transaction of the block."""
    found: list[Row] = []
    with other_session(server, name) as reader:

        def look(point: str) -> None:
            if point in (AFTER_LANE_COMMIT, AFTER_MARK):
                found.extend(reader.query(query))
                reader.rollback()

        with watched(look):
            yield found


@pytest.mark.guarantee("applied")
@pytest.mark.parametrize("consistency", Consistency)
def test_reader_sees_whole_source_transactions_only_if_asked(
    target_server: DatabaseServer, name: str, consistency: Consistency
) -> None:
    """The sum of all accounts never changes at the source. Under ``causal`` a reader of the target sees others."""
    stream, balances = _accounts(target_server, name), [BALANCE] * ACCOUNTS
    chance = random.Random(11)
    for _ in range(TRANSFERS):
        _transfer(stream, name, balances, chance)
    task = apply_task(name, consistency=consistency, lanes=6)
    query = "SELECT COALESCE(SUM(n), 0) FROM accounts"
    with _read_after_each_commit(target_server, name, query) as sums:
        _apply(target_server, task, LocalRecords(stream.values, window_rows=60))
    found = target_server.execute(f"SELECT id, n FROM {name}.accounts ORDER BY id")
    assert found == list(enumerate(balances))
    assert len(sums) > 20, "few lanes"
    is_whole = {int(str(total)) for (total,) in sums} <= {0, ACCOUNTS * BALANCE}
    assert is_whole == (consistency is Consistency.TRANSACTIONAL)


# ---- larger than a window -----------------------------------------------------------


def _bag(server: DatabaseServer, name: str) -> RecordStream:
    """Two small source transactions around one of three windows, on a table without a key."""
    server.execute("CREATE TABLE bag (n INT)", db=name)
    bag, stream = table(name, "bag", integer("n"), key=()), RecordStream()
    for rows in (3, LARGE_ROWS, 3):
        for number in range(rows):
            stream.insert(bag, {"n": number})
        stream.commit()
    return stream


def _whole_task(name: str, conflict: ConflictPolicy = ConflictPolicy.STOP) -> ApplyTask:
    return apply_task(name, consistency=Consistency.TRANSACTIONAL, conflict=conflict)


def _in_small_windows(stream: RecordStream, *, turn_s: float = float(ALL)) -> LocalRecords:
    return LocalRecords(stream.values, window_rows=SMALL_ROWS, turn_s=turn_s)


def _count(server: DatabaseServer, name: str) -> int:
    return int(str(server.execute(f"SELECT COUNT(*) FROM {name}.bag")[0][0]))


@pytest.mark.parametrize(
    ("fault", "rows"),
    [
        (f"{INSIDE_LARGE}:kill@1", 3),
        (f"{INSIDE_LARGE}:kill@3", 3),
        (f"{BEFORE_LANE_COMMIT}:kill@2", 3),
        (f"{AFTER_LANE_COMMIT}:kill@2", 3 + LARGE_ROWS),
    ],
)
def test_killed_large_transaction_is_applied_wholly_and_once(
    target_server: DatabaseServer, name: str, fault: str, rows: int
) -> None:
    """The first part is the small transaction before it. Nothing of the large one is visible before its commit."""
    stream = _bag(target_server, name)
    killed_at(fault, lambda: _apply(target_server, _whole_task(name), _in_small_windows(stream)))
    assert _count(target_server, name) == rows
    mark = _apply(target_server, _whole_task(name), _in_small_windows(stream))
    assert mark.seq == stream.seq
    assert _count(target_server, name) == LARGE_ROWS + 6
    found = target_server.execute(f"SELECT COUNT(DISTINCT n), SUM(n) FROM {name}.bag")
    assert found == [(LARGE_ROWS, sum(range(LARGE_ROWS)) + 2 * 3)]


@pytest.mark.parametrize("rows", [5, 30])
def test_stopped_capture_leaves_no_lock_on_the_target(
    target_server: DatabaseServer, name: str, rows: int
) -> None:
    """The topic ends after some rows of a source transaction, within a window or not. The turn ends before it."""
    stream = _bag(target_server, name)
    end = 1 + 3 + 1 + rows  # schema, rows, resolved
    part = RecordStream(values=stream.values[:end])
    mark = _apply(target_server, _whole_task(name), _in_small_windows(part, turn_s=0.05))
    assert mark.seq == 3
    assert _count(target_server, name) == 3
    with other_session(target_server, name) as other:
        query = "SELECT run FROM millrace.fence WHERE task = %s FOR UPDATE NOWAIT"
        assert other.query(query, (name,))
        assert len(other.query("SELECT n FROM bag FOR UPDATE NOWAIT")) == 3
    assert _apply(target_server, _whole_task(name), _in_small_windows(stream)).seq == stream.seq
    assert _count(target_server, name) == LARGE_ROWS + 6


def _conflicts(server: DatabaseServer, name: str) -> RecordStream:
    """A large source transaction whose 30th row deletes a row that is not there."""
    stream = _bag(server, name)
    bag = table(name, "bag", integer("n"), key=())
    for number in range(LARGE_ROWS):
        if number == 30:
            stream.delete(bag, {"n": -1})
        stream.insert(bag, {"n": number})
    stream.commit()
    return stream


def test_conflict_in_a_large_transaction_rolls_all_of_it_back(
    target_server: DatabaseServer, name: str
) -> None:
    """Under ``stop`` the error names the row, and the change is stored for the operator."""
    stream = _conflicts(target_server, name)
    with pytest.raises(Fatal, match="MR-5010"):
        _apply(target_server, _whole_task(name), _in_small_windows(stream))
    assert _count(target_server, name) == LARGE_ROWS + 6
    blocking = 3 + LARGE_ROWS + 3 + 31
    query = "SELECT seq, decision FROM millrace.conflict WHERE task = %s"
    assert target_server.execute(query, (name,)) == [(blocking, "stop")]


def test_skipped_conflict_in_a_large_transaction_loses_no_other_row(
    target_server: DatabaseServer, name: str
) -> None:
    """Only the window with the conflict is written row by row; rows of earlier windows stay."""
    stream = _conflicts(target_server, name)
    mark = _apply(target_server, _whole_task(name, ConflictPolicy.SKIP), _in_small_windows(stream))
    assert mark.seq == stream.seq
    assert _count(target_server, name) == 2 * LARGE_ROWS + 6
    query = "SELECT COUNT(*) FROM millrace.conflict WHERE task = %s"
    assert target_server.execute(query, (name,)) == [(1,)]


def test_new_meaning_of_a_schema_id_cuts_no_transaction(
    target_server: DatabaseServer, name: str
) -> None:
    """A capture task continues inside a source transaction with another registry, whose ids begin again."""
    stream = _accounts(target_server, name)
    target_server.execute("CREATE TABLE bag (n INT)", db=name)
    bag = table(name, "bag", integer("n"), key=())
    stream.update(_table(name), {"id": 1, "n": BALANCE}, {"id": 1, "n": BALANCE - 1})
    stream.introduce(bag, schema_id=100)  # that of the accounts
    stream.insert(bag, {"n": 1})
    stream.commit()
    query = "SELECT (SELECT n FROM accounts WHERE id = 1), (SELECT COUNT(*) FROM bag)"
    with _read_after_each_commit(target_server, name, query) as seen:
        _apply(target_server, _whole_task(name), LocalRecords(stream.values))
    assert seen[-1] == (BALANCE - 1, 1)
    assert set(seen) <= {(None, 0), (BALANCE, 0), (BALANCE - 1, 1)}
