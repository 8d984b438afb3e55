"""Apply on real targets of both flavors, without Spark: batches, lanes, replays, the fence.

The oracle is the content of the server's tables.
"""

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from secrets import randbelow
from threading import Event

import pytest

from millrace.consumer.records.pieces import Size, Taken
from millrace.consumer.target import fence
from millrace.consumer.target.fence import raise_fence, take_turn
from millrace.consumer.target.progress import DATABASE, check_fence
from millrace.consumer.target.running_statement import find_statement, lock
from millrace.consumer.turn.context import Tools
from millrace.consumer.turn.order import TurnOrder
from millrace.consumer.write.lanes import Done
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import MySqlSession, connect
from millrace.errors import Fenced, Retryable
from tests.kit.apply.history import SQL, make_history
from tests.kit.apply.local import (
    InlineLanes,
    LaneOrder,
    ListSource,
    LocalRecords,
    apply_task,
    backwards,
    endpoint_of,
    ignore,
    run_once,
    seqs_above_the_mark,
    started,
)
from tests.kit.apply.tables import ACCOUNTS_SQL, account, accounts
from tests.kit.apply.topic import RecordStream
from tests.kit.waiting import eventually

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
    for table in ("progress", "applied", "record_schema", "ddl_intent", "conflict", "left_out"):
        server.execute(f"DELETE FROM {DATABASE}.{table} WHERE task = '{database}'")
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
            window_rows=chance.choice([3, 1000]),
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
    assert len(seqs_above_the_mark(target_server, name)) > 0
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
    assert int(seqs_above_the_mark(target_server, name).max()) > third.mark.seq > 0
    third.process(LocalRecords(stream.values), ignore)
    third.close()
    assert target_server.execute(f"SELECT * FROM {name}.accounts ORDER BY id") == wanted
    assert not target_server.execute("SELECT * FROM millrace.applied WHERE task = %s", (name,))


class _LostError(Exception):
    """Simulates the death of the process."""


class _Interrupted(LocalRecords):
    """Commits two lanes; then the process dies."""

    def lanes(self) -> InlineLanes:
        return _LostLanes(lambda count: self.lane_order(count)[:2])


class _LostLanes(InlineLanes):
    def take(self, *, wait: bool) -> list[Done]:
        done = super().take(wait=wait)
        if wait:
            raise _LostError
        return done


@pytest.mark.guarantee("fenced")
def test_stale_run_writes_nothing(name: str, target_server: DatabaseServer) -> None:
    """Once a successor has raised the fence, its predecessor begins no turn."""
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


@pytest.mark.parametrize("kind", ["lanes", "one lane", "statement", "no rows"])
@pytest.mark.guarantee("fenced")
def test_turn_under_way_writes_nothing_after_a_new_start(
    name: str, target_server: DatabaseServer, kind: str
) -> None:
    """A successor raises the fence after the turn has read the progress: each kind of target transaction fails."""
    target_server.execute(ACCOUNTS_SQL, db=name)
    stream = RecordStream()
    if kind == "statement":
        stream.ddl("DROP TABLE accounts", database=name)
    elif kind != "no rows":
        stream = _history(name, changes=50)
    stream.commit()
    stale = started(target_server, apply_task(name))
    records = LocalRecords(
        stream.values,
        is_large=kind == "lanes",
        begun=lambda: started(target_server, apply_task(name), epoch=2),
    )
    with pytest.raises(Fenced) as caught:
        stale.process(records, ignore)
    stale.close()
    assert caught.value.code == "MR-5020"
    assert target_server.execute(f"SELECT COUNT(*) FROM {name}.accounts") == [(0,)]
    assert started(target_server, apply_task(name), epoch=2).mark == stale.mark


@dataclass
class _LateSource(ListSource):
    """The first record comes after the linger time."""

    asked: int = 0

    def take(self, size: Size, *, wait_s: float) -> Taken | None:
        self.asked += 1
        return super().take(size, wait_s=wait_s) if self.asked > 2 else None


class _Late(LocalRecords):
    def tools(self, order: TurnOrder) -> Tools:
        source = _LateSource(self.values, self.first, self.window_rows)
        return replace(
            super().tools(order), source=source, is_read=lambda: source.at >= order.offsets.end
        )


def test_turn_waits_for_records_that_the_topic_has(
    name: str, target_server: DatabaseServer
) -> None:
    """A slow broker does not end the turn: Spark plans no other micro-batch for these records."""
    target_server.execute(ACCOUNTS_SQL, db=name)
    stream = _history(name, changes=20)
    applier = started(target_server, apply_task(name))
    applier.process(_Late(stream.values), ignore)
    applier.close()
    assert applier.mark.seq == stream.seq


def test_earlier_version_can_use_the_progress_tables(
    name: str, target_server: DatabaseServer
) -> None:
    """Its inserts name no columns. The tables may be its own, or those of this version."""
    started(target_server, apply_task(name)).close()
    for table in ("session", "ddl_intent"):
        target_server.execute(f"ALTER TABLE {DATABASE}.{table} DROP COLUMN server")
    for _ in range(2):
        started(target_server, apply_task(name)).close()
        for table, values in (("session", "1, 0"), ("ddl_intent", "1, 'x', '{}', ''")):
            target_server.execute(f"REPLACE INTO {DATABASE}.{table} VALUES ('{name}', {values})")
            where = f"{DATABASE}.{table} WHERE task = '{name}'"
            assert target_server.execute(f"SELECT server FROM {where}") == [("",)]
            target_server.execute(f"DELETE FROM {where}")
            target_server.execute(f"DROP TABLE {DATABASE}.{table}")


@pytest.mark.parametrize("is_earlier", [False, True])
def test_raising_the_fence_kills_a_hung_lane_transaction(
    name: str, target_server: DatabaseServer, *, is_earlier: bool
) -> None:
    """A hung lane transaction does not block the successor, and its rows are rolled back.

    An earlier version stored no server for its session.
    """
    target_server.execute(ACCOUNTS_SQL, db=name)
    applier = started(target_server, apply_task(name))
    hung = applier.sessions.for_lane()
    share = "LOCK IN SHARE MODE" if target_server.flavour == "mariadb" else "FOR SHARE"
    hung.query(f"SELECT * FROM millrace.fence WHERE task = %s {share}", (name,))
    hung.query(f"INSERT INTO {name}.accounts VALUES (1, NULL, NULL, 1)")
    if is_earlier:
        target_server.execute(f"UPDATE {DATABASE}.session SET server = '' WHERE task = '{name}'")
    successor = started(target_server, apply_task(name))
    assert successor.owner.run == applier.owner.run + 1
    assert target_server.execute(f"SELECT COUNT(*) FROM {name}.accounts") == [(0,)]
    hung.close()
    applier.close()
    successor.close()


@pytest.mark.both_flavours
def test_text_of_another_session_hides_no_session(
    name: str, target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MySQL refuses to list sessions and transactions while one executes a text with a character of four bytes."""
    monkeypatch.setattr(fence, "HUNG_S", 0.1)
    target_server.execute(ACCOUNTS_SQL, db=name)
    endpoint, waited = endpoint_of(target_server), f"{name}-waited"
    applier = started(target_server, apply_task(name))
    hung = applier.sessions.for_lane()
    share = "LOCK IN SHARE MODE" if target_server.flavour == "mariadb" else "FOR SHARE"
    hung.query(f"SELECT * FROM millrace.fence WHERE task = %s {share}", (name,))
    with ExitStack() as opened:
        guard, other, observer = (
            opened.enter_context(closing(connect(endpoint))) for _ in range(3)
        )
        pool = opened.enter_context(ThreadPoolExecutor(1))
        opened.callback(hung.close)
        guard.query("SELECT GET_LOCK(%s, 0)", (waited,))
        lock(other, f"{name}-other")
        other.query(f"INSERT INTO {name}.accounts VALUES (1, NULL, NULL, 1)")
        answer = pool.submit(other.query, f"SELECT GET_LOCK('{waited}', 600), '🛒\", 1'")
        try:
            eventually(lambda: find_statement(observer, f"{name}-other") is not None)
            successor = started(target_server, apply_task(name))
            assert successor.owner.run == applier.owner.run + 1
            assert not answer.done()
        finally:
            guard.query("SELECT RELEASE_LOCK(%s)", (waited,))
    applier.close()
    successor.close()


def test_refused_turn_ends_no_session_of_the_turn_under_way(
    name: str, target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second execution of a turn is refused at once, however long the first one holds the fence."""
    monkeypatch.setattr(fence, "HUNG_S", 0.1)
    applier = started(target_server, apply_task(name))
    endpoint, before = endpoint_of(target_server), applier.owner
    second = connect(endpoint)
    first = take_turn(applier.sessions.for_lane(), before)
    lane = applier.sessions.of(first).for_lane()
    check_fence(lane, first)
    with pytest.raises(Fenced):
        take_turn(second, before)
    assert lane.query("SELECT 1") == [(1,)]
    second.close()
    applier.close()


def test_raising_the_fence_kills_a_hung_predecessor(
    name: str, target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The predecessor hangs after it locked the fence and before it updates it; the successor kills its session."""
    first = started(target_server, apply_task(name), epoch=1)
    hung, really_query, may_continue = (
        connect(endpoint_of(target_server)),
        MySqlSession.query,
        Event(),
    )
    is_there = Event()

    def query(self: MySqlSession, sql: str, *arguments: object) -> object:
        if self is hung and sql.startswith("UPDATE millrace.fence"):
            is_there.set()
            assert may_continue.wait(60)
        return really_query(self, sql, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(MySqlSession, "query", query)
    monkeypatch.setattr(fence, "HUNG_S", 0.3)
    with ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(raise_fence, hung, task=name, epoch=1)
        assert is_there.wait(60)
        successor = started(target_server, apply_task(name), epoch=2)
        may_continue.set()
        assert isinstance(stopped.exception(60), Retryable)
    assert successor.owner.run == first.owner.run + 1
    row = target_server.execute("SELECT epoch, run FROM millrace.fence WHERE task = %s", (name,))
    assert row == [(2, successor.owner.run)]
    for each in (hung, first, successor):
        each.close()


def test_session_closed_by_the_target_is_reopened(name: str, target_server: DatabaseServer) -> None:
    """A lane whose idle connection the server closed does not fail its task."""
    target_server.execute(ACCOUNTS_SQL, db=name)
    stream = RecordStream()
    applier = started(target_server, apply_task(name))
    for number in (1, 2):
        first = len(stream.values)
        stream.insert(accounts(name), account(number))
        stream.commit()
        session = applier.sessions.for_lane()
        target_server.execute(f"KILL {session.id}")
        applier.process(LocalRecords(stream.values[first:], first, is_large=False), ignore)
    applier.close()
    assert target_server.execute(f"SELECT COUNT(*) FROM {name}.accounts") == [(2,)]
